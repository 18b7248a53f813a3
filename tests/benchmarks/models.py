"Caption and encode by models of full size with random weights, in both precisions."

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench import race, show
from PIL import Image

from vid2context import florence
from vid2context.clip_encoder import ClipEncoder
from vid2context.florence import FlorenceCaptioner
from vid2context.options import Providers, Settings
from vid2context.tiny_florence import TEXT, make_tiny_florence
from vid2context.vision import vision_library, vision_precision

TOKENS = 20  # New ones a caption, what a sentence takes
PRECISIONS = ("bfloat16", "float32")
FLORENCE = {
    "depths": (1, 1, 9, 1),
    "embed_dim": (128, 256, 512, 1024),
    "num_heads": (4, 8, 16, 32),
    "num_groups": (4, 8, 16, 32),
    "projection_dim": 768,
    "window_size": 12,
    "drop_path_rate": 0.1,
    "max_position_embeddings": 50,
    "max_temporal_embeddings": 100,
}
BART = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "max_position_embeddings": 1024,
    "vocab_size": 51289,
}


def picture() -> Image.Image:
    "Draw a 720p frame."
    y, x = np.mgrid[0:720, 0:1280]
    return Image.fromarray(
        np.stack([x % 256, y % 256, (x * y) % 256], axis=2).astype(np.uint8)
    )


def big_florence(folder: Path) -> int:
    "Save a Florence-2-base of random numbers; give its size in parameters."
    torch, transformers = vision_library("torch"), vision_library("transformers")
    make_tiny_florence(folder)
    path = folder / "processor_config.json"
    about = json.loads(path.read_text())
    about["image_processor"]["size"] = {"height": 768, "width": 768}
    about["image_processor"]["image_seq_length"] = (768 // 32) ** 2 + 1
    path.write_text(json.dumps(about))
    tiny = json.loads((folder / "config.json").read_text())
    config = transformers.Florence2Config(
        vision_config=FLORENCE,
        text_config={**TEXT, **BART},
        image_token_id=tiny["image_token_id"],
    )
    torch.manual_seed(0)
    model = transformers.Florence2ForConditionalGeneration(config)
    ids = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")
    model.generation_config = transformers.GenerationConfig(
        min_new_tokens=TOKENS, **{name: TEXT[name] for name in ids}
    )
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def big_clip(folder: Path, name: str) -> int:
    "Save an open_clip model of random numbers; give its size in parameters."
    torch, open_clip = vision_library("torch"), vision_library("open_clip")
    torch.manual_seed(0)
    model = open_clip.create_model(name, load_weights=False)
    config = open_clip.get_model_config(name)
    config["text_cfg"].pop("hf_tokenizer_name", None)
    about = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    folder.mkdir()
    saved = {"model_cfg": config, "preprocess_cfg": about}
    (folder / "open_clip_config.json").write_text(json.dumps(saved))
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    save = vision_library("safetensors.torch").save_file
    save(weights, folder / "open_clip_model.safetensors")
    return sum(p.numel() for p in model.parameters())


def both(make: Callable[[Settings], object]) -> dict[str, object]:
    "Load a model in each precision."
    settings = [Settings(providers=Providers(precision=p)) for p in PRECISIONS]
    return {p: make(s) for p, s in zip(PRECISIONS, settings, strict=True)}


def main() -> None:
    frame, taken = picture(), {}
    chosen = vision_precision("auto")
    print(f"\nOn this processor `precision = auto` takes {chosen}.")
    florence.MOST_TOKENS = TOKENS
    with tempfile.TemporaryDirectory() as temp:
        size = big_florence(Path(temp) / "florence")
        made = both(lambda s: FlorenceCaptioner(Path(temp) / "florence", settings=s))
        runs = {p: (lambda m=m: m.caption(frame)) for p, m in made.items()}
        taken["caption"] = race(runs, rounds=3)
        title = f"One caption, Florence-2-base ({size / 1e6:.0f} M, random weights)"
        show(
            f"{title}, 720p frame, {TOKENS} new tokens, greedy",
            taken["caption"],
            reach={"float32": 2.5},
        )
    for short, name in (("siglip2", "ViT-B-16-SigLIP2"), ("clip-small", "ViT-B-32")):
        with tempfile.TemporaryDirectory() as temp:
            size = big_clip(Path(temp) / "clip", name)
            made = both(lambda s, t=temp: ClipEncoder(Path(t) / "clip", settings=s))
            rows = {p: m.encode_image(frame) for p, m in made.items()}
            cosine = float(np.dot(*rows.values()))
            runs = {
                p: (lambda m=m: m.encode_images([frame] * 4)) for p, m in made.items()
            }
            taken[short] = race(runs, rounds=3)
            show(
                f"One image vector, {name} ({size / 1e6:.0f} M, random weights)",
                taken[short],
                per=4,
                notes={"bfloat16": f"cosine with float32 {cosine:.4f}"},
                reach={"float32": 3.5},
            )
    for short in ("siglip2", "clip-small"):
        caption = statistics.median(taken["caption"][chosen])
        image = statistics.median(taken[short][chosen]) / 4
        print(
            "\nEstimate, not measured: 30 minutes at 5 s are 360 frames. With "
            f"florence-2 and {short} their vectors take {360 * image:.0f} s, and one "
            f"caption each 30 s takes {60 * caption:.0f} s; without the novelty gate "
            f"all captions would take {360 * caption:.0f} s."
        )


if __name__ == "__main__":
    main()
