"""A yt-dlp extractor for the loopback site of the download tests."""

from yt_dlp.extractor.common import InfoExtractor


class HarbourIE(InfoExtractor):
    """Answer with the JSON that the site serves for a page."""

    _VALID_URL = r"http://127\.0\.0\.1:[0-9]+/watch/(?P<id>[^/?#]+)"

    def _real_extract(self, url):
        return self._download_json(url.replace("/watch/", "/api/"), "page")
