"""Sentences of everyday speech from templates of this project: numbers, dates, requests, names."""

from __future__ import annotations

import random
import re

LICENCE = "MIT (this project)"


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_WORDS: dict[str, tuple[str, ...]] = {
    "name": _listed(
        "Amara Ben Carla David Elena Felix Greta Hugo Irene Jonas Karin Leon Mona Nadia Omar Paula "
        "Quentin Rosa Samuel Tara Ulrich Vera Wanda Xavier Yusuf Zelda Ingrid Walter"
    ),
    "place": _listed(
        "Amsterdam Bristol Calgary Dallas Edinburgh Florence Glasgow Helsinki Istanbul Jakarta "
        "Kyoto Leeds Melbourne Nairobi Oxford Portland Quebec Rome Stockholm Tampa Utrecht Venice "
        "Warsaw York Zagreb"
    ),
    "day": _listed(
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
    ),
    "month": _listed(
        "January February March April May June July August September October November "
        "December"
    ),
    "thing": _listed(
        "bag battery bench blanket book bottle box cable candle chair contract door envelope "
        "fence folder helmet jacket key ladder lamp map mirror mug parcel pencil pillow pump "
        "radio receipt rope scarf screen shelf shirt shovel spoon table ticket towel wheel"
    ),
    "kind": _listed(
        "blue cheap clean cold cracked curved dark dry empty famous fresh green grey large light "
        "long loose narrow new old plain red rough round short silver small soft square thick "
        "thin tidy warm white wide wooden"
    ),
    "do": _listed(
        "borrow bring carry check clean close collect copy deliver find fix hide hold lock move "
        "open order pack paint pass pick print repair return sell send show sign store test "
        "wash weigh wrap"
    ),
    "weather": (
        "heavy rain", "light snow", "thick fog", "clear skies", "strong winds", "a few showers",
        "bright sunshine", "a sharp frost",
    ),
    "when": (
        "today", "tonight", "tomorrow", "this morning", "this afternoon", "next week",
        "after lunch", "before noon", "in an hour", "on {day}",
    ),
    "hello": ("Hello", "Hi", "Good morning", "Good afternoon", "Good evening", "Welcome"),
    "unit": ("meters", "miles", "minutes", "hours", "days", "pages", "steps", "seats"),
    "who": ("I", "we", "you", "they", "the manager", "my sister", "his brother", "the driver"),
}  # fmt: skip
_TEMPLATES = (
    "{hello}, {name}, how can I help you {when}?",
    "{hello}, this is {name} from {place}.",
    "Could you {do} the {kind} {thing} {when}?",
    "Please {do} the {thing} and {do} the {thing}.",
    "The {thing} costs ${1-99}.{10-99}.",
    "You owe me ${100-9999} for the {kind} {thing}.",
    "The train to {place} leaves in {2-59} minutes from platform {1-24}.",
    "Your appointment is on {day}, {month} {1-28}.",
    "{name} was born in {1901-2012} and lives in {place}.",
    "We expect {weather} in {place} {when}.",
    "It is {2-39} degrees in {place}, with {weather}.",
    "My number is {2-9} {0-9} {0-9}, {0-9} {0-9} {0-9} {0-9}.",
    "There are {12-999} people and {1000-98000} books in this library.",
    "The result is {1000-9999999}.",
    "About {2-98} percent of the {thing}s were {kind}.",
    "Why did {name} {do} the {thing} before {day}?",
    "Do you know where {name} put the {kind} {thing}?",
    "Which {thing} is better, the {kind} one or the {kind} one?",
    "{name} and {name} drove from {place} to {place} in {month}.",
    "Turn left after {20-900} meters, then go straight for {2-19} {unit}.",
    "What a {kind} {thing}!",
    "No, {who} will {do} it {when}.",
    "Yes, of course, I can {do} your {thing} {when}.",
    "Sorry, I did not hear that; did you say {2-99} or {100-999}?",
    "Chapter {1-60}, page {2-480}.",
    "If the {thing} is {kind}, {do} it; if not, call {name}.",
    "Thank you, {name}, and have a nice {day}.",
    "I think {who} should {do} the {kind} {thing} first.",
    "Room {1-900} is on the left, just behind the {kind} {thing}.",
    "It took {name} {3-58} {unit} to {do} a single {thing}.",
)
_PLACE = re.compile(r"\{(?:(?P<low>\d+)-(?P<high>\d+)|(?P<word>\w+))\}")


def make_sentences(count: int, rng: random.Random) -> tuple[str, ...]:
    """`count` different sentences, each template in its turn."""
    made: dict[str, None] = {}
    while len(made) < count:
        text = _filled(_TEMPLATES[len(made) % len(_TEMPLATES)], rng)
        made.setdefault(text[0].upper() + text[1:])
    return tuple(made)


def _filled(template: str, rng: random.Random) -> str:
    def value(place: re.Match[str]) -> str:
        if place["word"]:
            return _filled(rng.choice(_WORDS[place["word"]]), rng)
        return str(rng.randint(int(place["low"]), int(place["high"])))

    return _PLACE.sub(value, template)
