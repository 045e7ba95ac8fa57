"""Plans lose and double nothing, keep players fed, and forget what is cancelled."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import frames
from server.errors import ConfigurationError
from server.pace import Pace
from server.plan import PlannedBatch, PlannedRow, PlannerConfig, call_sizes, hop_of
from server.planner import Planner

FRAME_S = frames.SAMPLES_PER_FRAME / frames.SAMPLE_RATE_HZ
LATENT = frames.SAMPLES_PER_LATENT
CONFIGS = st.builds(
    PlannerConfig,
    form=st.sampled_from(["cropped", "window"]),
    batched=st.booleans(),
    first_chunk_frames=st.sampled_from([None, 1, 2, 3, 4]),
    largest_hop=st.sampled_from([1, 2, 4]),
    longest_wait_ms=st.sampled_from([0.0, 40.0, 300.0]),
    fill_rows=st.sampled_from([1, 2, 32]),
    tick_frames=st.sampled_from([4, 8, 512]),
)


def expected_latents(tokens: int) -> int:
    return tokens // 7 * 4


def as_steps(count: int, per_step: int = 1) -> list[int]:
    return [per_step] * (count // per_step) + ([count % per_step] if count % per_step else [])


@dataclass
class Player:
    """Plays from the first sample on, without a buffer; counts what it lacks.

    It plays `speed` times faster, and the last `held_s` (as played) stay in an encoder.
    """

    speed: float = 1.0
    held_s: float = 0.0
    dry_s: float | None = None
    samples: int = 0
    gaps_s: list[float] = field(default_factory=list)

    def receive(self, samples: int, now: float) -> None:
        if self.dry_s is not None and now > self.dry_s + 1e-9:
            self.gaps_s.append(now - self.dry_s)
        seconds = samples / frames.SAMPLE_RATE_HZ / self.speed
        kept_s = min(self.held_s, seconds)
        self.held_s -= kept_s
        self.samples += samples
        if seconds > kept_s:
            start = now if self.dry_s is None else max(now, self.dry_s)
            self.dry_s = start + seconds - kept_s


class Simulation:
    """A service in small: steps, ticks, a decoder that takes its time, and players.

    Rows are checked as they come: each starts where its stream's last one ended, knows no more
    than has been generated, and has the right context that the settings promise.
    """

    def __init__(self, config: PlannerConfig, decode_s: float = 0.004) -> None:
        self.planner = Planner(config)
        self.config, self.decode_s = config, decode_s
        self.now = 100.0
        self.tokens: dict[str, int] = {}
        self.emitted: dict[str, int] = {}
        self.rows: dict[str, list[PlannedRow]] = defaultdict(list)
        self.players: dict[str, Player] = {}
        self.ended: set[str] = set()
        self.unpaced: set[str] = set()
        self.cancelled: set[str] = set()
        self.pending: list[tuple[float, PlannedBatch]] = []
        self.batches: list[PlannedBatch] = []

    def open(
        self,
        name: str,
        *,
        lead_in: bool = False,
        paced: bool = True,
        speed: float = 1.0,
        held_s: float = 0.0,
    ) -> None:
        self.planner.open(name, lead_in=lead_in, paced=paced, speed=speed, held_s=held_s)
        if not paced:
            self.unpaced.add(name)
        self.tokens[name], self.emitted[name] = 0, 0
        self.players[name] = Player(speed, held_s)

    def step(self, counts: dict[str, int], step_s: float) -> None:
        self._advance(self.now + step_s)
        for name, count in counts.items():
            self.tokens[name] += count
        self.planner.add(counts, self.now)
        self._tick()

    def end(self, name: str) -> None:
        self.ended.add(name)
        self.planner.end(name)

    def cancel(self, name: str) -> None:
        self.cancelled.add(name)
        self.planner.close(name)

    def finish(self) -> None:
        """Run until all that is open is done."""
        for _ in range(10_000):
            if all(self.planner.done(name) for name in self.tokens):
                return
            self._advance(self.now + 0.005)
            self._tick()
        raise AssertionError("streams that ended are never done")

    def _advance(self, until: float) -> None:
        while self.pending and self.pending[0][0] <= until:
            self.now, batch = self.pending.pop(0)
            self._deliver(batch)
        self.now = until

    def _deliver(self, batch: PlannedBatch) -> None:
        wanted = self.planner.delivered(batch, self.now)
        for row, keep in zip(batch.rows, wanted, strict=True):
            assert keep == (row.stream not in self.cancelled)
            if keep:
                self.players[row.stream].receive(row.latents * LATENT, self.now)
                self.planner.sent(row.stream, row.latents * LATENT, self.now)

    def _tick(self) -> None:
        start = max([self.now, *(done for done, _ in self.pending)])
        batches = self.planner.tick(self.now)
        assert sum(batch.hop * len(batch.rows) for batch in batches) <= self.config.tick_frames
        for batch in batches:
            assert batch.size >= len(batch.rows)
            assert self.config.batched or len(batch.rows) == 1
            assert batch.hop <= self.config.largest_hop
            start += self.decode_s
            self.pending.append((start, batch))
            for row in batch.rows:
                self._check(row, batch.hop)
        self.batches += batches
        assert len({batch.tick for _, batch in self.pending}) <= self.config.ticks_in_flight

    def _check(self, row: PlannedRow, hop: int) -> None:
        name = row.stream
        assert name not in self.cancelled
        assert 0 < row.latents <= 4 * hop
        assert row.start == self.emitted[name]
        self.emitted[name] += row.latents
        self.rows[name].append(row)
        if name in self.unpaced:
            assert row.end <= frames.latents_ready(self.tokens[name])
        elif name in self.ended:
            assert row.end == expected_latents(self.tokens[name])
        else:
            assert row.end == frames.latents_ready(self.tokens[name])
            right = 8 if self.config.form == "window" else 2 if row.lead_in else 7
            assert row.start + row.latents + right <= row.end
        assert row.start + row.latents <= expected_latents(self.tokens[name])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), config=CONFIGS)
def test_every_latent_of_a_whole_frame_comes_once_whatever_the_arrivals(data, config) -> None:
    """Bursts, stalls, ends mid-frame, cancels and late opens; `Simulation` checks each row."""
    simulation = Simulation(config, decode_s=data.draw(st.sampled_from([0.0, 0.004, 0.2])))
    running: list[str] = []
    for number in range(data.draw(st.integers(1, 60))):
        choice = data.draw(st.sampled_from(["step"] * 6 + ["open", "end", "cancel"]))
        if choice == "open" or not running:
            name = f"s{number}"
            simulation.open(name, lead_in=data.draw(st.booleans()))
            running.append(name)
        elif choice == "step":
            some = data.draw(st.lists(st.sampled_from(running), unique=True))
            counts = {name: data.draw(st.integers(1, 40)) for name in some}
            simulation.step(counts, data.draw(st.sampled_from([0.0, 0.003, 0.05, 3.0])))
        else:
            name = data.draw(st.sampled_from(running))
            running.remove(name)
            getattr(simulation, choice)(name)
    for name in running:
        simulation.end(name)
    simulation.finish()
    for name, tokens in simulation.tokens.items():
        if name not in simulation.cancelled:
            assert simulation.emitted[name] == expected_latents(tokens)
            assert simulation.players[name].samples == 2_048 * (tokens // 7)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), config=CONFIGS, lead_in=st.booleans())
def test_rows_of_a_stream_that_nobody_plays_yet_do_not_depend_on_the_clock(
    data, config, lead_in
) -> None:
    """The same rows with the same context, in whatever bursts tokens come and whoever else is."""
    length = data.draw(st.integers(1, 40)) * 7 + data.draw(st.integers(0, 6))

    def rows() -> list[tuple[int, int, int, bool]]:
        simulation = Simulation(config, decode_s=data.draw(st.sampled_from([0.0, 0.004, 0.2])))
        simulation.open("whole", lead_in=lead_in, paced=False)
        simulation.open("other")
        left = length
        while left:
            burst = min(left, data.draw(st.integers(1, 60)))
            left -= burst
            step_s = data.draw(st.sampled_from([0.0, 0.01, 0.5]))
            simulation.step({"whole": burst, "other": data.draw(st.integers(1, 9))}, step_s)
        simulation.end("whole")
        simulation.end("other")
        simulation.finish()
        assert simulation.emitted["whole"] == expected_latents(length)
        return [(row.start, row.latents, row.end, row.is_rest) for row in simulation.rows["whole"]]

    assert rows() == rows()


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_players_do_not_run_dry_while_generation_keeps_ahead(data) -> None:
    """Generation at up to 0.93 of the time it has, steps that jitter by half, many streams."""
    count = data.draw(st.integers(1, 20))
    largest = data.draw(st.sampled_from([2, 4]))
    batched = data.draw(st.booleans())
    share = data.draw(st.floats(0.05, 0.93))
    step_s = share * FRAME_S / 7
    config = PlannerConfig(
        largest_hop=largest,
        batched=batched,
        form=data.draw(st.sampled_from(["cropped", "window"])),
        longest_wait_ms=data.draw(st.sampled_from([0.0, 40.0, 300.0])),
        tick_frames=512 if batched else largest * count,
    )
    # Calls of one row pile up: a tick is a row a stream, two ticks take less than a frame.
    decode_s = data.draw(st.sampled_from([0.002, 0.02])) if batched else 0.04 / count
    simulation = Simulation(config, decode_s)
    lengths = {}
    jitter = data.draw(st.lists(st.floats(0.5, 1.5), min_size=8, max_size=8))
    mean = sum(jitter) / len(jitter)
    for index in range(6):  # A pace is known before the streams that count.
        simulation.planner.pace.stepped(step_s * jitter[index] / mean, index)
        simulation.planner.pace.delivered(2 * decode_s * max(3, count) + step_s, index)
    arrivals = {f"s{i}": data.draw(st.integers(0, 60)) for i in range(count)}
    for number in range(420):
        for name, arrival in arrivals.items():
            if arrival == number:
                simulation.open(name)
                lengths[name] = data.draw(st.integers(60, 300))
        counts = {}
        for name in list(lengths):
            if lengths[name] == 0:
                simulation.end(name)
                del lengths[name]
            else:
                lengths[name] -= 1
                counts[name] = 1
        simulation.step(counts, step_s * jitter[number % 8] / mean)
    for name in lengths:
        simulation.end(name)
    simulation.finish()
    for name, player in simulation.players.items():
        # A call behind a longer one than any so far comes later than could be known.
        assert sum(player.gaps_s) < 0.005, f"{name}: {player.gaps_s}"
        assert player.samples == 2_048 * (simulation.tokens[name] // 7)


@pytest.mark.parametrize("longest_wait_ms", [0, 300])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("decode_s", [0.002, 0.02])
def test_no_pace_from_a_tenth_of_the_time_to_nearly_all_of_it_lets_a_player_run_dry(
    decode_s: float, count: int, longest_wait_ms: float
) -> None:
    """Without the jitter allowance a third of these paces would."""
    for percent in range(10, 94, 3):
        step_s = percent / 100 * FRAME_S / 7
        simulation = Simulation(PlannerConfig(longest_wait_ms=longest_wait_ms), decode_s)
        simulation.planner.pace.stepped(step_s, 0)
        simulation.planner.pace.delivered(6 * decode_s + step_s, 0)
        names = [f"s{index}" for index in range(count)]
        for name in names:
            simulation.open(name)
        for number in range(280):
            simulation.step({name: 1 for i, name in enumerate(names) if number >= 5 * i}, step_s)
        for name in names:
            simulation.end(name)
        simulation.finish()
        assert not any(player.gaps_s for player in simulation.players.values()), percent


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("held_s", [0.0, 0.02, 0.096])
@pytest.mark.parametrize("decode_s", [0.002, 0.02])
def test_another_speed_and_an_encoder_let_no_player_run_dry(
    speed: float, held_s: float, decode_s: float
) -> None:
    """Which they would if the planner took what it sent for what is played."""
    for percent in range(10, 70, 5):
        step_s = percent / 100 * FRAME_S / 7 / speed
        simulation = Simulation(PlannerConfig(), decode_s / speed)
        simulation.planner.pace.stepped(step_s, 0)
        simulation.planner.pace.delivered(6 * decode_s / speed + step_s, 0)
        simulation.open("s", speed=speed, held_s=held_s)
        for _ in range(280):
            simulation.step({"s": 1}, step_s)
        simulation.end("s")
        simulation.finish()
        assert not simulation.players["s"].gaps_s, percent


def one_stream(
    step_s: float, tokens: int, config: PlannerConfig | None = None, *, lead_in: bool = False
) -> Simulation:
    simulation = Simulation(config or PlannerConfig())
    for number in range(20):
        simulation.planner.pace.stepped(step_s, number)
    simulation.open("s", lead_in=lead_in)
    for _ in range(tokens):
        simulation.step({"s": 1}, step_s)
    return simulation


def test_hops_go_from_a_short_first_chunk_straight_to_four_frames() -> None:
    simulation = one_stream(step_s=0.003, tokens=210)
    simulation.end("s")
    simulation.finish()
    sizes = [row.latents for row in simulation.rows["s"]]
    assert sizes[0] == 4
    assert max(sizes[1:5]) == 16
    assert sizes.count(4) <= 3  # the first, perhaps a second, and the tail
    rights = [row.end - row.start - row.latents for row in simulation.rows["s"]]
    assert rights[0] == 7
    assert all(right >= 8 for right in rights[1:-3])


def test_slow_generation_gets_a_longer_first_chunk_and_a_fixed_one_stays() -> None:
    fast = one_stream(0.003, 70).rows["s"][0]
    slow = one_stream(0.011, 70).rows["s"][0]
    fixed = one_stream(0.011, 70, PlannerConfig(first_chunk_frames=3)).rows["s"][0]
    capped = one_stream(0.003, 70, PlannerConfig(first_chunk_frames=4, largest_hop=2)).rows["s"][0]
    assert (fast.latents, slow.latents, fixed.latents, capped.latents) == (4, 8, 12, 8)


def test_a_player_short_of_audio_gets_short_hops_at_once() -> None:
    """Slower than realtime: nothing helps, but what is there is sent."""
    simulation = one_stream(step_s=0.015, tokens=140)
    sizes = [row.latents for row in simulation.rows["s"]]
    assert set(sizes[2:]) == {4}
    assert simulation.emitted["s"] >= expected_latents(140) - 12


def test_a_row_without_hurry_waits_for_company_and_not_too_long() -> None:
    def run(longest_wait_ms: float, company: int) -> float:
        config = PlannerConfig(longest_wait_ms=longest_wait_ms, fill_rows=3)
        planner = Planner(config)
        names = ["s", *(f"c{i}" for i in range(company))]
        for name in names:
            planner.open(name, lead_in=False)
            planner.sent(name, 240_000, 0.0)  # ten seconds ahead
        planner.add(dict.fromkeys(names, 7), 0.0)
        for number in range(20):
            planner.pace.stepped(0.003, number)
        planner.add(dict.fromkeys(names, 14), 0.0)
        now = 0.0
        for batch in planner.tick(now):
            planner.delivered(batch, now)
        planner.add(dict.fromkeys(names, 70), now)
        while not planner.tick(now):
            now += 0.001
        return now

    assert run(40, 0) == pytest.approx(0.040, abs=0.0011)
    assert run(300, 0) == pytest.approx(0.300, abs=0.0011)
    assert run(0, 0) == 0
    assert run(300, 2) == 0


def test_the_most_urgent_rows_go_first_when_a_tick_is_full() -> None:
    planner = Planner(PlannerConfig(tick_frames=8, first_chunk_frames=1))
    for index in range(5):
        name = f"s{index}"
        planner.open(name, lead_in=False)
        planner.sent(name, 24_000 * (5 - index), 0.0)
    planner.add({f"s{index}": 21 for index in range(5)}, 0.0)
    (batch,) = planner.tick(0.0)
    planner.delivered(batch, 0.0)
    planner.add({f"s{index}": 70 for index in range(5)}, 0.1)
    assert planner.tick(0.2) == []
    planned = [row.stream for batch in planner.tick(0.25) for row in batch.rows]
    assert planned == ["s4", "s4"]


@pytest.mark.parametrize(
    ("step_s", "rows"),
    [
        # 1.5 ms a token: three latents last until speech can follow; 3 ms: four; 10 ms: none do.
        (0.0015, [(10, 0, 3), (17, 3, 4), (24, 7, 4), (31, 11, 4), (38, 15, 4)]),
        (0.003, [(11, 0, 4), (18, 4, 4), (25, 8, 4), (32, 12, 4), (39, 16, 4)]),
        (0.010, [(7, 0, 2), (14, 2, 4), (21, 6, 4), (28, 10, 4), (35, 14, 4), (42, 18, 4)]),
    ],
)
def test_lead_in_rows_come_early_and_speech_is_planned_again_from_its_onset(
    step_s: float, rows: list[tuple[int, int, int]]
) -> None:
    simulation = Simulation(PlannerConfig())
    planner = simulation.planner
    planner.open("s", lead_in=True)
    planned = []
    for token in range(1, 43):
        planner.add({"s": 1}, step_s * token)
        for batch in planner.tick(step_s * token):
            assert planner.delivered(batch, step_s * token) == [True] * len(batch.rows)
            planned += [(token, row) for row in batch.rows]
    assert [(token, row.start, row.latents) for token, row in planned] == rows
    assert all(row.lead_in for _, row in planned)
    planner.add({"s": 7}, 0.2)
    (batch,) = planner.tick(0.2)
    planner.speak("s", 13)
    assert planner.delivered(batch, 0.2) == [False]
    (batch,) = planner.tick(0.21)
    assert [(row.start, row.end, row.lead_in) for row in batch.rows] == [(13, 28, False)]
    assert not planner.done("s")


def test_a_cancelled_streams_name_can_be_taken_by_another_at_once() -> None:
    planner = Planner(PlannerConfig(first_chunk_frames=1))
    planner.open("s", lead_in=False)
    planner.add({"s": 21}, 0.0)
    (batch,) = planner.tick(0.0)
    with pytest.raises(ValueError, match="'s' is open"):
        planner.open("s", lead_in=False)
    planner.close("s")
    planner.open("s", lead_in=False)
    assert planner.delivered(batch, 0.1) == [False]
    assert planner.tick(0.1) == []
    assert planner.slack_s("s", 0.1) == 0
    planner.close("s")
    assert len(planner) == 0
    assert planner.done("s")


def test_a_stream_that_ends_before_a_frame_is_done_without_a_row() -> None:
    planner = Planner()
    planner.open("s", lead_in=True)
    planner.add({"s": 6}, 0.0)
    assert planner.tick(0.0) == []
    planner.end("s")
    assert planner.tick(0.1) == []
    assert planner.done("s")


def test_a_batch_takes_the_cheapest_sizes_that_hold_it() -> None:
    sizes = (1, 2, 4, 8, 16, 32)
    assert call_sizes(5, sizes, {}) == [8]
    assert call_sizes(32, sizes, {}) == [32]
    assert call_sizes(70, sizes, {}) == [32, 32, 8]
    costs_ms = {1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4, 16: 4.0, 32: 9.0}
    assert call_sizes(17, sizes, costs_ms) == [16, 1]
    assert call_sizes(31, sizes, costs_ms) == [16, 16]
    assert call_sizes(7, sizes, costs_ms) == [8]
    assert [hop_of(latents) for latents in (1, 4, 5, 8, 9, 16)] == [1, 1, 2, 2, 4, 4]


def test_the_pace_follows_what_is_measured() -> None:
    pace = Pace(floor_s=0.025, extra_s=0.015)
    assert pace.jitter_s >= 0.025
    for number in range(300):
        pace.stepped(0.004, number * 0.004)
        pace.delivered(0.002, number * 0.004)
    assert pace.frame_s == pytest.approx(0.028)
    assert pace.jitter_s == pytest.approx(0.025)
    pace.delivered(0.050, 1.3)
    assert pace.jitter_s == pytest.approx(0.050 + 0.008 + 0.015)
    for number in range(3_000):
        pace.delivered(0.002, 1.3 + number * 0.004)
    assert pace.jitter_s == pytest.approx(0.025)
    pace.stepped(60.0, 20.0)
    assert pace.frame_s == pytest.approx(0.028)


def test_what_a_round_decodes_is_no_jitter_of_the_engines_steps() -> None:
    """On a CPU a decode lies between two steps: it counts as delivery, and in the pace."""
    planner = Planner()
    planner.open("s", lead_in=False)
    for number in range(20):
        planner.add({"s": 1}, number * 0.024, took_s=0.004)
    assert planner.pace.frame_s == pytest.approx(7 * 0.024)
    assert planner.pace.interval_p99_s == pytest.approx(0.024)
    assert planner.pace.step_p99_s == pytest.approx(0.004)


def test_the_time_an_engine_idles_is_not_a_step() -> None:
    planner = Planner()
    planner.open("s", lead_in=False)
    for number in range(20):
        planner.add({"s": 1}, number * 0.004)
    planner.idle()
    planner.add({"s": 1}, 0.9)
    assert planner.pace.frame_s == pytest.approx(0.028)
    planner.add({"s": 7}, 0.928)  # seven tokens in one step
    assert planner.pace.frame_s == pytest.approx(0.028)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "stateful"}, "form is 'stateful'; set it to cropped or window"),
        ({"first_chunk_frames": 5}, "first_chunk_frames is 5; set it to 1 to 4"),
        ({"largest_hop": 3}, "largest_hop is 3"),
        ({"longest_wait_ms": -1.0}, "longest_wait_ms is -1"),
        ({"longest_wait_ms": math.nan}, "longest_wait_ms is nan"),
        ({"first_right": 9}, "steady_right is 8"),
        ({"batch_sizes": (2, 1)}, "batch_sizes"),
        ({"batch_sizes": ()}, "batch_sizes"),
        ({"tick_frames": 2}, "tick_frames is 2"),
        ({"ticks_in_flight": 0}, "ticks_in_flight is 0"),
        ({"jitter_floor_ms": -1.0}, "jitter_floor_ms is -1.0"),
        ({"jitter_extra_ms": -1.0}, "jitter_extra_ms is -1.0"),
        ({"fill_rows": 0}, "fill_rows is 0"),
    ],
)
def test_settings_that_cannot_work_are_named(change: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PlannerConfig(**change)
