"Jobs between threads, and a queue that somebody tampered with."

import logging
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from vid2context.job_table import JobTable
from vid2context.jobs import Queue, make_consumer


class Bomb:
    "A pickle that would leave a mark."

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_a_pickle_in_the_queue_is_never_loaded(tmp_path):
    queue = Queue(tmp_path)
    mark = tmp_path / "mark"
    queue.huey.storage.enqueue(pickle.dumps(Bomb(mark)))
    queue.huey.storage.enqueue(b'{"message": ["1", "os.system", null]}')
    job = queue.submit("echo", {"n": 1})
    logging.getLogger("huey").setLevel(logging.CRITICAL)
    consumer = make_consumer(tmp_path, work={"echo": lambda request, handle: request})
    consumer.start()
    until(lambda: queue.table.get(job.id).is_final)
    consumer.stop(graceful=True)
    assert queue.table.get(job.id).result == {"n": 1}
    assert not mark.exists()
    queue.close()


def test_a_job_is_taken_once(tmp_path):
    tables = [JobTable(tmp_path) for _ in range(4)]
    jobs = [tables[0].add("echo", {}, most=99).id for _ in range(25)]
    start = threading.Barrier(4)

    def take(table):
        start.wait()
        return [job for job in jobs if table.take(job)]

    with ThreadPoolExecutor(4) as pool:
        taken = [job for found in pool.map(take, tables) for job in found]
    assert sorted(taken) == sorted(jobs)
    for table in tables:
        table.close()


def test_a_final_job_stays_final(tmp_path):
    table = JobTable(tmp_path)
    job = table.add("echo", {}, most=9)
    assert table.finish(job.id, "done") is False
    table.take(job.id)
    assert table.finish(job.id, "failed", error={"code": "upstream"})
    table.note(job.id, {"step": "x", "done": 1, "total": 1})
    table.put_back(job.id)
    assert table.cancel(job.id).state == "failed"
    assert table.take(job.id) is None
    assert [row for row in table.open() if row == job.id] == []
    table.close()


def test_a_lost_message_is_found_again(tmp_path):
    queue = Queue(tmp_path)
    job = queue.table.add("echo", {"n": 2}, most=9)
    assert queue.huey.pending() == []
    assert queue.recover() == 1
    assert queue.recover() == 0
    assert [list(task.args) for task in queue.huey.pending()] == [[job.id]]
    queue.close()
