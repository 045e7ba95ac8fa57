"""What is left of markup, emoji, control characters and tags: what is said, and nothing else."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.markup import EMOTIONS, PAUSE, plain_text, without_tags


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<p>One &amp; two</p><p>three</p>", "One & two.\n\nthree"),
        ("<b>un</b>likely <i>words</i>", "unlikely words"),
        ("a <!-- not this --> b <script>nor(this)</script> c", "a b c"),
        ("<ul><li>milk</li><li>eggs</li></ul>", "milk. eggs."),
        ("<bob@example.com> and <https://a.org/b>", "bob@example.com and https://a.org/b"),
        ("# The title\nThe text.", "The title.\n\nThe text."),
        ("Some **bold**, *slanted* and `code`.", "Some bold, slanted and code."),
        ("See [the page](https://a.org/b) ![a cat](c.png).", "See the page a cat."),
        ("[a [b]](http://x/(y)) and (see [c](d))", "a [b] and (see c)"),
        ("[https://a.org](mailto:bob@a.org)", "https://a.org"),
        ("[![a cat](c.png)](big(1).png) and [the [old] page][1]", "a cat and the [old] page"),
        ("f[a] (b), [c\nd](e), \\[f\\](g) and [h](i", "f[a] (b), [c d](e), [f](g) and [h](i"),
        ("- milk\n- eggs\n", "milk. eggs."),
        ("1. Mix\n2. Bake", "1, Mix. 2, Bake."),
        ("```python\nx\n```\n> quoted", "x.\n\nquoted"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b.\n\n1, 2."),
        ("5 * 3 is 15", "5 times 3 is 15"),
        ("<speak>Hi <prosody rate='slow'>there</prosody></speak>", "Hi there"),
        ("<sub alias='World Wide Web'>WWW</sub>", "World Wide Web"),
        ("<speak>Say <![CDATA[Tom & Ann]]></speak>", "Say Tom & Ann"),
        ("<![CDATA[un]]>likely <![CDATA[if a<b then c>d]]>", "unlikely if a < b then c > d"),
        ("<![CDATA[Not the end", "Not the end"),
        ("the end.]]></speak>", "the end."),
        ("<!-- <![CDATA[not this]]> --> but <![CDATA[<b>this</b>]]>", "but < b > this < /b >"),
        ("<|eot<![CDATA[]]>_id|> Hi", "Hi"),
        ("a < b and c > d", "a < b and c > d"),
        ("(ages 5 to 8) and 8D, 8P", "(ages 5 to 8) and 8D, 8P"),
        ("if x <3 then", "if x <3 then"),
        ("Fine :-) 8-) xD <3", "Fine"),
        ("at 25\u2103, 77\u2109 or 25\u02daC", "at 25\u00b0C, 77\u00b0F or 25\u00b0C"),
        (
            "Nice \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea!",
            "Nice !",
        ),
        ("1\ufe0f\u20e3 first :-) <3", "1 first"),
        ("zero\u200bwidth so\u00adft\ufeff \x00con\x07trol", "zerowidth soft con trol"),
        ("half \ud800 of one", "half of one"),
        ("Hi <|eot_id|><custom_token_7> you", "Hi you"),
        ("hard\nwrapped lines\nof prose", "hard wrapped lines of prose"),
        (
            "The Lost Treasure\nOne sunny morning in a village by the sea there lived a boy.",
            "The Lost Treasure. One sunny morning in a village by the sea there lived a boy.",
        ),
        ("A title\n\nA text", "A title.\n\nA text"),
        ("!!!! WHAT?!?! ...", "!!!! WHAT?!?! ..."),
        ("", ""),
    ],
)
def test_markup_is_not_said(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@pytest.mark.parametrize("tag", ["<frustrated>", "<whisper>", "</happy>", "<speaking style='x'>"])
def test_a_tag_that_the_model_does_not_know_is_never_said(tag: str) -> None:
    for text in (f"{tag}This is a bug!", f"This is {tag} a bug!", f"This is a bug!{tag}"):
        assert plain_text(text, EMOTIONS) == "This is a bug!"


def test_a_tag_that_the_model_knows_stays_in_one_form() -> None:
    text = "<chuckle>This < Laugh > is</laugh> a <si\u200bgh/> bug"
    assert plain_text(text, EMOTIONS) == "<chuckle> This <laugh> is a <sigh> bug"
    assert plain_text(text) == "This is a bug"


@pytest.mark.parametrize(
    ("tag", "ms"),
    [
        ("<break time='500ms'/>", 500),
        ('<break time="1.5s" />', 1_500),
        ("<break time='99s'/>", 10_000),
        ("<break/>", 400),
        ("<break strength='strong'/>", 700),
    ],
)
def test_a_break_is_a_pause(tag: str, ms: int) -> None:
    assert [int(found) for found in PAUSE.findall(plain_text(f"a {tag} b"))] == [ms]


def test_a_break_of_no_length_is_none_and_no_text_can_write_a_pause() -> None:
    assert plain_text("a <break strength='none'/> b") == "a b"
    assert not PAUSE.search(plain_text("a \ue000500\ue000 b"))


@given(
    st.text(
        alphabet=st.sampled_from("ab1 <>/!?&;#[]()*_`|-\n\t'\"=\ue000\u200b\U0001f600"),
        max_size=300,
    )
)
def test_plain_text_has_nothing_unsaid_and_stays_as_it_is(text: str) -> None:
    plain = plain_text(text, EMOTIONS)
    bare = PAUSE.sub(" ", plain)
    assert not re.search(r"[ \t]{2}|\n{3}|^\s|\s$", plain)
    for character in bare:
        assert character == "\n" or unicodedata.category(character)[0] not in "C"
    words = re.findall(r"[ab]+", without_tags(bare))
    # Nothing is made up: what is left is there in the text, in order.
    at = 0
    for word in "".join(words):
        at = text.find(word, at) + 1
        assert at > 0


@pytest.mark.parametrize(
    "part",
    [
        "<",
        "[a",
        "<a ",
        "<!--",
        "*",
        "&#",
        "| ",
        "\n",
        "- ",
        " ",
        "`",
        "<sub>",
        "#",
        "-\t",
        "= ",
        "\n ",
        "[a](",
        "![[a]",
        "]([",
        "()",
        "<![CDATA[",
        "<![CDATA[<]]>",
        "]]>",
        "://a:b",
        "http://a@",
    ],
)
def test_a_hundred_thousand_characters_of_anything_are_read_at_once(part: str) -> None:
    # With a step whose time grows with the square of a text this would not end before the timeout.
    plain_text(part * (100_000 // len(part)) + "x")


FORMS = {
    "plain words": "plain words",
    "[a link](http://x/y)": "a link",
    "[a [nested] link](http://x/(y)(z))": "a [nested] link",
    "![a picture](p.png)": "a picture",
    "[![an inner one](p.png)](http://x)": "an inner one",
    "[the last][1]": "the last",
    "<![CDATA[Tom & Ann]]>": "Tom & Ann",
    "<![CDATA[one<two and three>one]]>": "one < two and three > one",
    "array[0] (unchanged)": "array[0] (unchanged)",
    "https://user:secret@example.org/(a)": "https://example.org/(a)",
}


@given(st.lists(st.sampled_from(sorted(FORMS)), max_size=12), st.sampled_from([" ", "\n"]))
def test_of_links_sections_and_addresses_no_word_is_lost_or_said_twice(
    forms: list[str], between: str
) -> None:
    said = " ".join(FORMS[form] for form in forms)
    assert plain_text(between.join(forms)).split() == said.split()


@pytest.mark.parametrize(
    "address",
    [
        "https://user:SECRET@host.org/a",
        "https://user:SECRET@SECRET@host.org/a",
        "https://user:SEC/RET#SECRET@host.org/a",
        "https://SECRET@host.org/a",
        "postgres://user:SECRET@host.org:5432/a",
        "<https://user:SECRET@host.org/a>",
        "[here](https://user:SECRET@host.org/a) host a",
    ],
)
def test_a_password_in_an_address_is_never_said(address: str) -> None:
    plain = plain_text(f"See {address} now.")
    assert not re.search("sec|ret", plain, re.IGNORECASE)
    assert "host" in plain


@pytest.mark.parametrize(
    "address", ["https://host.org:8080/@bob", "https://host.org/@bob:org", "bob@host.org"]
)
def test_a_name_that_is_no_user_of_an_address_is_said(address: str) -> None:
    assert plain_text(f"See {address} now.") == f"See {address} now."
