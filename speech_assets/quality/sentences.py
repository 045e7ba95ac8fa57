"""The thirty sentences that quality is judged by: seven kinds of text, written for this project.

No calibration, training or held-out text holds one of them (`quantize.calibration.check_apart`,
`quality.apart`). Kinds take turns, so that the first ten hold all seven.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

CODE_VERSION = "2"  # Bump when other samples would come of the same server.


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its number, 0 to 29, and the kind of text that it is."""

    id: int
    kind: str
    text: str


_BY_KIND: dict[str, tuple[str, ...]] = {
    "short": (
        "Try the blue one first.",
        "Nobody answered the bell.",
        "Is it still raining outside?",
        "That was not my idea.",
        "Leave your boots by the stove.",
    ),
    "numbers": (
        "The last ferry leaves at 4:30 on Tuesday, August 12.",
        "We paid $19.95 for 3 tickets and a map of the old town.",
        "On the 2nd of May 1998, 64 runners finished in under 3 hours.",
        "Only 7 percent of the 1,250 letters came back, the 5th of them empty.",
        "Bake it at 180 degrees for 45 minutes and let it cool for 10.",
    ),
    "names": (
        "Margaret Holloway met Professor Ivanov in Copenhagen last spring.",
        "Ask Benjamin whether Charlotte has moved to Vancouver.",
        "Daniel Cooper and his sister Emily grew up near Lake Ontario.",
        "In Barcelona, Sofia Marquez teaches music to children from Morocco.",
    ),
    "punctuation": (
        "Wait, what did you say? The keys, the real keys, were in the oven?",
        '"Stop!" he cried; then, after a moment: "Sorry, I thought you were someone else."',
        "Well... if that's so, why didn't they call us first?",
        "Bread, butter, jam (the red one), and tea: is there anything we forgot?",
    ),
    "long": (
        "Every autumn, after the last apples had been carried down to the cellar, my uncle would "
        "light a small fire behind the barn, and the whole family would sit around it until late, "
        "talking about the harvest, the neighbors, and the winter ahead.",
        "The path to the lighthouse is longer than it looks from the harbor, because it first "
        "follows the edge of the marsh, then climbs through a narrow valley, and only after the "
        "second bridge turns back towards the sea.",
        "When the orchestra stopped in the middle of the second movement, most of the audience "
        "believed that it was part of the piece, until the conductor turned around, smiled, and "
        "asked whether somebody could switch off the alarm.",
        "I had planned to finish the report before lunch, but the printer ran out of paper, the "
        "telephone kept ringing, and by the time I sat down again, the afternoon was gone and half "
        "of the figures no longer made sense.",
    ),
    "technical": (
        "The server keeps one queue for each stream and drops nothing before the buffer is full.",
        "A neural codec turns each second of speech into eighty tokens on three levels.",
        "Check that the voltage across the capacitor falls to zero before you open the case.",
        "The compiler removes the loop because its result does not depend on the index.",
    ),
    "tongue_twister": (
        "Six swift sailors sew sixty silver sails on Sunday.",
        "Brave brown bears bring bright berries to Brenda's breakfast.",
        "Rachel rarely wraps red ribbons round her wrinkled raincoat.",
        "The cheerful chef chose cheap cherries and chopped cheddar cheese.",
    ),
}
KINDS = tuple(_BY_KIND)

QUALITY_SENTENCES: tuple[Sentence, ...] = tuple(
    Sentence(number, kind, text)
    for number, (kind, text) in enumerate(
        (kind, text)
        for texts in itertools.zip_longest(*_BY_KIND.values())
        for kind, text in zip(_BY_KIND, texts, strict=True)
        if text is not None
    )
)
"""One of each kind after the other, then the second of each, and so on."""
SEEDS = (1, 2)
"""That each is spoken with, unless others are asked for."""
