"""What a decision rests on: events, our own past decisions, load alone, or a rule that is there to be measured."""

from cacheplane.parity import ENOUGH
from cacheplane.worker import Worker
from tests.cacheplane.stage import Stage, prompt


def test_the_mode_says_what_the_decision_rests_on() -> None:
    stage = Stage("w0", synced=False)
    tokens = prompt(1, 320)
    assert stage.decide(tokens).mode == "load-only"
    assert stage.decide(tokens).mode == "approximate"  # a sibling
    stage.index.trust("w0")
    assert stage.decide(tokens).mode == "events"
    stage.index.doubt("w0")
    stage.now += 60
    assert stage.decide(tokens).mode == "load-only"


def test_without_events_sessions_return_by_our_own_past_decisions() -> None:
    stage = Stage("w0", "w1", "w2", synced=False)
    tokens = prompt(1, 400)
    first = stage.decide(tokens)
    assert (first.mode, first.predicted_tokens) == ("load-only", 0)
    for turn in range(2, 6):
        stage.placement.first_token(first)
        stage.placement.finished(first, first.predicted_tokens)
        stage.now += 60  # long after it was a sibling
        tokens = tokens + prompt(turn, 100)
        again = stage.decide(tokens)
        assert (again.worker.id, again.mode, again.reason) == (first.worker.id, "approximate", "prefix")
        assert again.predicted_tokens == (len(tokens) - 100) // 16 * 16
        first = again


def test_a_guess_ends_where_events_begin() -> None:
    stage = Stage("w0", synced=False)
    tokens = prompt(1, 400)
    first = stage.decide(tokens)
    stage.placement.first_token(first)
    stage.placement.finished(first, 0)
    stage.now += 60
    stage.index.trust("w0")  # the stream is followed now, and it holds nothing
    decision = stage.decide(tokens)
    assert (decision.mode, decision.predicted_tokens) == ("events", 0)
    stage.placement.first_token(decision)
    stage.now += 60
    stage.index.doubt("w0")
    assert stage.decide(tokens).mode == "load-only"


def test_nothing_that_a_process_did_is_believed_of_the_next_one_under_its_name() -> None:
    stage = Stage("w0", "w1", synced=False)
    tokens = prompt(1, 400)
    first = stage.decide(tokens, "w1")
    stage.fleet.leave("w0")  # as a link does it when another process answers
    stage.placement.forget("w0")
    stage.fleet.join(Worker("w0", "http://w0", "m", "f"))
    stage.report("w0", epoch=2)
    stage.placement.first_token(first)  # what the last one had sent before it died
    stage.placement.finished(first, 16)
    again = stage.decide(tokens, "w1")
    assert (again.mode, again.predicted_tokens, again.cost.prefill_ms) == ("load-only", 0, 400)
    assert stage.placement.parity.of("w0").requests == 0


def test_blind_decisions_are_counted() -> None:
    stage = Stage("w0", synced=False)
    assert stage.placement.tally.blind_share == 0
    stage.decide(prompt(1, 32))
    stage.index.trust("w0")
    for seed in range(3):
        stage.decide(prompt(seed, 32))
    assert stage.placement.tally.of("w0") == {"load-only": 1, "events": 3}
    assert stage.placement.tally.blind_share == 0.25
    stage.placement.forget("w0")
    assert (stage.placement.tally.of("w0"), stage.placement.tally.blind_share) == ({}, 0.25)


def test_a_worker_whose_predictions_are_wrong_is_chosen_by_load_until_they_are_right_again() -> None:
    stage = Stage("w0", "w1")
    tokens = prompt(1, 800)
    stage.hold("w0", tokens)
    for _ in range(ENOUGH):
        decision = stage.decide(tokens, "w1")
        assert (decision.mode, decision.predicted_tokens) == ("events", 784)
        stage.placement.finished(decision, 0)
    stage.report("w0", queued_prefill_tokens=500)
    stage.now += 60
    suspended = stage.decide(tokens)
    assert (suspended.worker.id, suspended.mode) == ("w1", "events")
    stage.placement.finished(suspended, None)
    for _ in range(ENOUGH):
        shadow = stage.decide(tokens, "w1")
        assert (shadow.mode, shadow.predicted_tokens, shadow.cost.prefill_ms) == ("load-only", 784, 800)
        stage.placement.finished(shadow, 784)
    assert stage.decide(tokens, "w1").mode == "events"


def test_round_robin_takes_turns_by_model_and_passes_over_the_excluded() -> None:
    stage = Stage("w0", "w1", "w2", strategy="round-robin")
    stage.hold("w1", prompt(1, 320))
    decisions = [stage.decide(prompt(1, 320)) for _ in range(4)]
    assert [decision.worker.id for decision in decisions] == ["w0", "w1", "w2", "w0"]
    assert {(decision.mode, decision.reason) for decision in decisions} == {("load-only", "turn")}
    assert decisions[1].predicted_tokens == 304
    assert stage.decide(prompt(1, 320), "w1").worker.id == "w2"


def test_longest_overlap_goes_to_the_holder_whatever_its_load() -> None:
    stage = Stage("w0", "w1", strategy="longest-overlap")
    tokens = prompt(1, 320)
    stage.hold("w0", tokens[:32])
    stage.report("w0", queued_prefill_tokens=10**6, decode_sequences=50)
    assert stage.decide(tokens).worker.id == "w0"
    stage.placement.forget("w0")
    assert stage.decide(prompt(2, 320)).worker.id == "w1"  # nobody holds it: fewest sequences


def test_delivered_reuse_is_compared_with_the_prediction() -> None:
    stage = Stage("w0")
    tokens = prompt(1, 320)
    stage.hold("w0", tokens)
    for delivered in (304, 16):
        stage.placement.finished(stage.decide(tokens), delivered)
    stage.placement.finished(stage.decide(tokens), None)
    record = stage.placement.parity.of("w0")
    assert (record.requests, record.predicted, record.delivered, record.mismatches) == (2, 608, 320, 1)
    stage.placement.forget("w0")
    assert stage.placement.parity.of("w0").requests == 0


def test_without_prefix_awareness_only_load_counts_and_the_forecast_goes_on() -> None:
    stage = Stage("a", "b", strategy="load-only")
    tokens = prompt(1, 640)
    stage.hold("a", tokens)
    stage.report("a", queued_prefill_tokens=10)
    decision = stage.decide(tokens)
    assert (decision.worker.id, decision.mode, decision.reason) == ("b", "load-only", "load")
    assert (decision.predicted_tokens, decision.available_tokens) == (0, 624)
    stage.report("b", queued_prefill_tokens=5000)
    assert stage.decide(tokens).predicted_tokens == 624
