"""The scheduler alone: no model, no MLX."""

import random
import subprocess
import sys

import pytest

from vllm_mlx.engine.protocol import Submit, Thinking
from vllm_mlx.engine.scheduler import Gate, Phase, Scheduler


def scheduler(slots=2, waiting=100, context=1000) -> Scheduler:
    return Scheduler(slots, waiting, context, 500)


def submit(id, prompt=3, max_tokens=5, **fields) -> Submit:
    return Submit(id, list(range(prompt)), max_tokens, **fields)


def admitted(s: Scheduler, **gate) -> list:
    sequences = []
    while sequence := s.admit(**gate):
        sequences.append(sequence)
    return sequences


def ids(sequences) -> list[str]:
    return [sequence.submit.id for sequence in sequences]


def test_slots_go_to_the_smaller_priority_then_first_come():
    s = scheduler(slots=2)
    for id, priority in (("a", 1), ("b", 0), ("c", 0), ("d", 1)):
        assert s.submit(submit(id, priority=priority)) is None
    assert ids(admitted(s)) == ["b", "c"]
    assert s.admit() is None
    s.remove(s.get("c"))
    assert ids(admitted(s)) == ["a"]


def test_the_gate_holds_back_one_or_all_behind_it():
    s = scheduler(slots=3)
    for id in "abc":
        s.submit(submit(id))
    assert ids(admitted(s, gate=lambda q: Gate.PASS_BY if q.submit.id == "a" else Gate.OPEN)) == ["b", "c"]
    s.submit(submit("d"))
    assert admitted(s, gate=lambda q: Gate.SHUT if q.submit.id == "a" else Gate.OPEN) == []
    assert ids(admitted(s)) == ["a"]


@pytest.mark.parametrize(
    ("request_", "kind", "says"),
    [
        (submit("x", prompt=0), "invalid", "no tokens"),
        (Submit("x", [500], 1), "invalid", "500"),
        (Submit("x", [-1], 1), "invalid", "vocabulary"),
        (submit("x", max_tokens=0), "invalid", "max_tokens"),
        (submit("x", prompt=400, max_tokens=601), "too_long", "1000"),
        (submit("taken"), "invalid", "in use"),
    ],
)
def test_what_cannot_run_is_refused(request_, kind, says):
    s = scheduler()
    s.submit(submit("taken"))
    refusal = s.submit(request_)
    assert refusal is not None
    assert refusal.kind == kind
    assert says in refusal.message


def test_the_queue_is_bounded():
    s = scheduler(waiting=2)
    assert [s.submit(submit(str(i))) is None for i in range(3)] == [True, True, False]
    assert s.submit(submit("late")).kind == "overloaded"


def test_a_short_prompt_is_not_delayed_by_a_long_one_and_the_long_one_does_not_starve():
    s = scheduler(slots=3, context=10_000)
    s.submit(submit("long", prompt=400))
    s.submit(submit("short", prompt=10))
    for sequence in admitted(s):
        s.prefilled(sequence, 0)
    picked = [s.next_prefill(5)[0][0].submit.id for _ in range(4)]
    assert picked == ["short", "short", "short", "long"]


def test_prompts_that_fit_are_prefilled_together():
    s = scheduler(slots=4, context=10_000)
    for id, prompt in (("long", 400), ("a", 11), ("b", 21), ("c", 5)):
        s.submit(submit(id, prompt=prompt))
    for sequence in admitted(s):
        s.prefilled(sequence, 0)

    def parts(budget):
        return [(sequence.submit.id, count) for sequence, count in s.next_prefill(budget)]

    assert parts(34) == [("c", 4), ("a", 10), ("b", 20)]
    assert parts(33) == [("c", 4), ("a", 10)]
    assert parts(3) == [("c", 3)]
    assert parts(500) == [("long", 399), ("c", 4), ("a", 10), ("b", 20)]


def decoding(s: Scheduler, request: Submit):
    assert s.submit(request) is None
    (sequence,) = admitted(s)
    s.prefilled(sequence, sequence.remaining)
    assert sequence.phase is Phase.DECODE
    return sequence


def test_a_sequence_ends_at_max_tokens_and_is_not_launched_past_it():
    s = scheduler()
    sequence = decoding(s, submit("a", max_tokens=2))
    s.launched([sequence])
    s.launched([sequence])
    assert not sequence.launchable
    assert s.accept(sequence, 7).finish is None
    delta = s.accept(sequence, 8)
    assert (delta.tokens, delta.finish) == ([8], "length")
    assert not s.has_work


def test_a_stop_id_is_reported_apart_from_the_tokens():
    s = scheduler()
    sequence = decoding(s, submit("a", stop_ids=[9]))
    s.launched([sequence])
    first = s.accept(sequence, 7)
    last = s.accept(sequence, 9)
    assert (first.tokens, first.cached_tokens) == ([7], 0)
    assert (last.tokens, last.finish, last.stop_id, last.cached_tokens) == ([], "stop", 9, None)


def written(s, sequence, natural, requeued_at=None) -> list[int]:
    """Plays the step loop: launches ahead by one step, except where the scheduler must wait.

    At `requeued_at` launched tokens the slot is taken away, and given back at once.
    """
    flying = None
    out = []
    while sequence.phase is Phase.DECODE:
        if sequence.launched == requeued_at:
            s.requeue(sequence)
            flying = requeued_at = None
            assert admitted(s) == [sequence]
            s.prefilled(sequence, sequence.remaining)
        if flying is not None and sequence.must_wait:
            out += s.accept(sequence, flying).tokens
            flying = None
        launched = None
        if sequence.launchable:
            forced = sequence.next_forced()
            launched = natural[sequence.launched] if forced is None else forced
            s.launched([sequence])
        if flying is not None:
            out += s.accept(sequence, flying).tokens
        flying = launched
    return out


@pytest.mark.parametrize(
    ("budget", "natural", "expected"),
    [
        (3, [1, 1, 1, 1, 1, 1], [1, 1, 1, 50, 51, 1]),
        (0, [1, 1, 1, 1, 1, 1], [50, 51, 1, 1, 1, 1]),
        # It closed by itself just in time: nothing is forced.
        (2, [50, 51, 1, 1, 1, 1], [50, 51, 1, 1, 1, 1]),
        # It had begun to close: only the rest is forced.
        (3, [1, 1, 50, 1, 1, 1], [1, 1, 50, 51, 1, 1]),
        (None, [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]),
    ],
)
def test_a_thought_is_closed_when_its_budget_is_used_up(budget, natural, expected):
    s = scheduler()
    sequence = decoding(s, submit("a", max_tokens=6, thinking=Thinking(True, [50, 51], budget)))
    assert written(s, sequence, natural) == expected


@pytest.mark.parametrize("requeued_at", range(7))
@pytest.mark.parametrize(
    ("close_ids", "natural", "expected"),
    [
        ([50, 51, 52], [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 50, 51, 52, 1]),
        ([50, 51, 52], [1, 1, 50, 1, 1, 1, 1], [1, 1, 50, 51, 52, 1, 1]),
        ([50, 50, 51], [1, 1, 50, 1, 1, 1, 1], [1, 1, 50, 50, 51, 1, 1]),
        ([50], [1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 50, 1, 1, 1]),
        ([50, 51], [1, 50, 51, 1, 1, 1, 1], [1, 50, 51, 1, 1, 1, 1]),
    ],
)
def test_a_thought_is_closed_wherever_its_sequence_was_put_back(close_ids, natural, expected, requeued_at):
    s = scheduler()
    sequence = decoding(s, submit("a", max_tokens=7, thinking=Thinking(True, close_ids, 3)))
    assert written(s, sequence, natural, requeued_at) == expected


def test_a_closed_thought_has_no_budget():
    s = scheduler()
    sequence = decoding(s, submit("a", max_tokens=4, thinking=Thinking(False, [50], 1)))
    assert written(s, sequence, [1, 2, 3, 4]) == [1, 2, 3, 4]


def test_a_requeued_sequence_goes_on_with_its_tokens():
    s = scheduler(slots=1)
    sequence = decoding(s, submit("a", max_tokens=4))
    s.launched([sequence])
    s.accept(sequence, 7)
    s.launched([sequence])
    s.requeue(sequence)
    assert s.admit() is sequence
    assert sequence.tokens == [0, 1, 2, 7]
    assert sequence.remaining == 3
    s.prefilled(sequence, 3)
    s.launched([sequence])
    assert s.accept(sequence, 8).tokens == [8]
    assert sequence.generated == 2


def test_random_traffic_keeps_the_books():
    rng = random.Random(1)
    s = scheduler(slots=3, waiting=5)
    alive, serial = [], 0
    for _ in range(3000):
        action = rng.random()
        if action < 0.2:
            serial += 1
            if s.submit(submit(str(serial), prompt=rng.randint(1, 9), max_tokens=rng.randint(1, 6))) is None:
                alive.append(s.get(str(serial)))
        elif action < 0.3 and alive:
            s.remove(rng.choice(alive))
        elif action < 0.35 and s.running:
            s.requeue(rng.choice(s.running))
        for sequence in admitted(s):
            s.prefilled(sequence, 0)
        budget = rng.randint(1, 20)
        parts = s.next_prefill(budget)
        assert sum(count for _, count in parts) <= budget
        for sequence, count in parts:
            s.prefilled(sequence, count)
        for sequence in [running for running in s.running if running.launchable]:
            s.launched([sequence])
            s.accept(sequence, rng.randint(0, 9))
        alive = [a for a in alive if a.phase is not Phase.DONE]
        assert len(s.running) <= 3
        assert len(s.waiting) <= 5 + 3
        assert sorted(map(id, alive)) == sorted(map(id, s.running + s.waiting))


def test_the_scheduler_and_the_client_need_no_mlx():
    code = (
        "import sys, vllm_mlx.engine.scheduler, vllm_mlx.engine.client; "
        "bad = {'mlx', 'mlx.core', 'mlx_lm', 'transformers'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
