"""Responses are kept within bounds, and what is forgotten is forgotten whole."""

import pytest

from vllm_mlx.api.response_store import ResponseStore


def item(id):
    return {"id": id, "type": "message", "content": "x" * 100}


def ids(store, names):
    return [name for name in names if store.get(name)]


@pytest.mark.parametrize("bounds", [{"max_responses": 3}, {"max_bytes": 500}])
def test_the_least_used_response_goes_first(bounds):
    store = ResponseStore(**bounds)
    for name in "abc":
        store.put(name, b"{}", [item("in-" + name)], [item("out-" + name)])
    assert store.get("a")
    store.put("d", b"{}", [item("in-d")], [item("out-d")])
    assert not store.get("b")
    assert ids(store, "acd") == ["a", "c", "d"]
    assert store.item("out-b") is None
    assert store.item("out-a") == item("out-a")


def test_a_response_that_is_too_big_alone_is_not_kept():
    store = ResponseStore(max_bytes=100)
    store.put("a", b"{}", [item("in")], [item("out")])
    assert store.get("a") is None
    assert store.item("out") is None


def test_a_history_goes_on():
    store = ResponseStore()
    store.put("a", b"{}", [item("in")], [item("out")])
    assert store.get("a").history == [item("in"), item("out")]
    assert store.delete("a")
    assert not store.delete("a")
    assert store.item("out") is None
