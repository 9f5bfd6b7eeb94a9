"""In which language captions are, and whether a tokenizer seems to know it."""

import pytest

from simgrad.data import open_dataset
from simgrad.data.languages import language_of, seems_foreign
from simgrad.data.subwords import WordPieces

CAPTIONS = {
    "German": [
        "Ein Hund läuft über die Wiese",
        "Zwei Kinder spielen mit einem roten Ball",
        "Eine Frau sitzt auf einer Bank vor dem Haus",
    ],
    "French": ["Un chien court dans l'herbe", "Une femme est assise sur un banc"],
    "Spanish": ["Un perro corre por la hierba", "Dos niños juegan con una pelota en el parque"],
    "Dutch": ["Een man is aan het fietsen in de stad", "Twee kinderen spelen met een rode bal"],
    "Chinese": ["一只狗在草地上奔跑", "两个孩子在玩红色的球"],
    "Cyrillic": ["Собака бежит по траве", "Двое детей играют с красным мячом"],
}
ENGLISH = [
    "A dog runs on the grass",
    "two children play with a red ball",
    "a man in a blue shirt is standing on a ladder cleaning a window",
    "people are sitting at a table in front of a large building",
    "a little girl climbs the stairs of her wooden playhouse with two young dogs",
]
NAMES = [
    "Jürgen Müller and Wolfgang Schäuble meet François Mitterrand at the Café de Flore",
    "Zlatan Ibrahimović kicks the ball to José in the Estádio da Luz",
]


@pytest.mark.parametrize("language", CAPTIONS)
def test_the_language_is_told(language: str) -> None:
    assert language_of(CAPTIONS[language]) == language


@pytest.mark.parametrize("captions", [ENGLISH, NAMES, ["red heart", "blue ball"], ["", "12"], []])
def test_english_is_not_taken_for_another(captions: list[str]) -> None:
    assert language_of(captions) in ("English", "")


def test_scenes_are_english() -> None:
    scenes = open_dataset("scenes(train=50, val=2, test=2)").split("train").captions
    assert language_of(scenes) == "English"


@pytest.mark.parametrize("language", ["German", "Chinese", "Cyrillic"])
def test_pieces_of_english_words_do_not_know_others(language: str) -> None:
    english = WordPieces.build(ENGLISH * 5)
    assert seems_foreign(CAPTIONS[language] * 5, english) == language
    assert seems_foreign(ENGLISH, english) is None
    assert seems_foreign(NAMES, english) is None


@pytest.mark.parametrize("language", ["German", "Cyrillic"])
def test_a_tokenizer_of_that_language_gives_no_alarm(language: str) -> None:
    own = WordPieces.build(CAPTIONS[language] * 5)
    both = WordPieces.build((CAPTIONS[language] + ENGLISH) * 5)
    assert seems_foreign(CAPTIONS[language], own) is None
    assert seems_foreign(CAPTIONS[language], both) is None
