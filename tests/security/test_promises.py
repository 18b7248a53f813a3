"The watch that every test runs under does see what it watches for."

import contextlib
import multiprocessing
import pickle
import socket
from decimal import Decimal

import promises
import pytest


@pytest.fixture
def watch():
    found = promises.Watch()
    found.install()
    yield found
    found.broken.clear()


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        (("127.0.0.1", 80), False),
        (("::1", 80, 0, 0), False),
        (("localhost", 80), False),
        ("/run/some.sock", False),
        (("192.0.2.1", 443), True),
        (("10.0.0.1", 80), True),
        (("example.org", 80), True),
    ],
)
def test_remote_addresses(address, remote):
    assert promises.is_remote(address) is remote


@pytest.mark.breaks_promises
def test_a_connection_is_seen(watch):
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.settimeout(0.01)
        probe.connect(("192.0.2.1", 9))
    assert watch.broken == ["connected to ('192.0.2.1', 9)"]


@pytest.mark.breaks_promises
def test_a_pickle_is_seen(watch):
    pickle.loads(pickle.dumps(Decimal(1)))
    assert watch.broken == ["unpickled decimal.Decimal"]


def test_own_workers_may_exchange_objects(watch):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(Decimal, ("2",)) == Decimal(2)
    assert watch.broken == []
