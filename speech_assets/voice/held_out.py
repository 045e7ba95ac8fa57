"""The fixed sentences that judge the voice, none of which any part of it is trained on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TEXTS: tuple[str, ...] = (
    # 20 Harvard sentences (IEEE Recommended Practice for Speech Quality Measurements, 1969).
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It's easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
    "Four hours of steady work faced us.",
    "A large size in stockings is hard to sell.",
    "The boy was there when the sun rose.",
    "A rod is used to catch pink salmon.",
    "The source of the huge river is the clear spring.",
    "Kick the ball straight and follow through.",
    "Help the woman get back to her feet.",
    "A pot of tea helps to pass the evening.",
    "Smoky fires lack flame and heat.",
    "The soft cushion broke the man's fall.",
    "The salt breeze came across from the sea.",
    "The girl at the booth sold fifty bonds.",
    # 10 long ones of this project.
    "Nobody in the village could remember when the old clock had last struck the hour.",
    "Streaming speech should start quickly and keep going without any gaps.",
    "When you are ready, please tell me which city you would like to visit next summer.",
    "The library closes at nine, but you can return your books through the box by the door.",
    "She opened the letter slowly, read it twice, and then put it back on the table.",
    "If the weather stays dry, we will walk along the river and have lunch near the bridge.",
    "Your order has been shipped and should arrive on Thursday afternoon.",
    "I am sorry, but I did not understand your question.",
    "Twenty-three students wrote a short story about a brave little robot.",
    "Every morning the baker fills the street with the smell of warm bread.",
    # 40 examples of WordNet 3.0.
    "I was near exhausted by the run.",
    "The individualism of the frontier in Andrew Jackson's day.",
    "When the direct approach failed he tried the inverse.",
    "He had an edge on the competition.",
    "The Pakistani president promised no first strike against India.",
    "He lacks the foundation necessary for advanced study.",
    "The fear of being sued for malpractice has magnified physicians' defensiveness.",
    "The probe closed with the space station.",
    "Don't stay up so late, you have to go to work tomorrow.",
    "I belatedly wished her a happy birthday.",
    "The setting sun kindled the sky with oranges and reds.",
    "He felt the girl in the movie theater.",
    "If we lose the election the whole legislative merry-go-round will have to start over.",
    "It was off to a good start.",
    "His playing stamps him as a Romantic.",
    "They clambered to the tip of Monadnock.",
    "He was unwashed and uncombed with his clothes half buttoned.",
    "He menaced the bank manager with a stick.",
    "Did you gallop the horse just now?",
    "Then we looked at the other house.",
    "Pedagogy is recognized as an important profession.",
    "The nativistic faith preaches the old values.",
    "The golf ball was in an unplayable lie.",
    "The brothers rode to an easy victory on their father's political name.",
    "If he didn't take it, then who did?",
    "We imprint our ideas onto our children.",
    "The power plant received a new upgrade.",
    "He alluded to the problem but did not mention it.",
    "He supported me with one hand while I balanced on the beam.",
    "She woke up to the sound of the alarm clock.",
    "There is no life on the moon.",
    "She dashed off a letter to her lawyer.",
    "I happen to have just what you need!",
    "He read a chapter every night before falling asleep.",
    "His hopes were so high he was doomed to disappointment.",
    "The Pennsylvania Dutch tole watering can might be a reproduction but it looks convincing.",
    "His stoppage of the flow resulted in a flood.",
    "I have to translate when my in-laws from Austria visit the U.S.",
    "He is remembered for his generosity and civilization.",
    "He was responsible for the procurement of materials and supplies.",
)
"""The held-out texts by id."""
HELD_OUT_IDS = range(len(TEXTS))
"""Ids of the texts kept out of training."""
SETS: dict[str, tuple[int, ...]] = {
    "harvard": tuple(range(20)),
    "long": tuple(range(20, 30)),
    "wordnet": tuple(range(30, 70, 2)),
}
SPOKEN_IDS = tuple(i for ids in SETS.values() for i in ids)
"""The 50 sentences that the language model speaks."""
RESYNTHESISED_IDS = tuple(range(0, 70, 2))
"""The 35 recordings that the codec resynthesises."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A held-out sentence found within a text to train on."""

    id: int
    text: str
    sentence: str


def words_of(text: str) -> tuple[str, ...]:
    """The words of `text` in lower case, without punctuation: what two readers would both say."""
    return tuple(re.findall(r"[a-z0-9]+", text.lower().replace("'", "").replace("\u2019", "")))


def overlaps(texts: Iterable[tuple[int, str]], held: Sequence[str] = TEXTS) -> list[Overlap]:
    """Texts, given with their ids, that hold a sentence of `held`: as it stands, or its words.

    Words are compared in their order and without gaps, wherever in a text they stand, for a text
    may be several sentences joined.
    """
    by_start: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for sentence in held:
        if words := words_of(sentence):
            by_start.setdefault(words[0], []).append((words, sentence))
    found: list[Overlap] = []
    for number, text in texts:
        words = words_of(text)
        for at, word in enumerate(words):
            for wanted, sentence in by_start.get(word, ()):
                if words[at : at + len(wanted)] == wanted:
                    found.append(Overlap(number, text, sentence))
    return found
