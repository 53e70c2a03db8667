"""What Ctrl-C in a replay asks, and what an answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from osub.cli.replay import _ask
from submitter.replay.replay_progress import ReplayProgress, Wish

NOW = ReplayProgress(unsubmitted=1, waiting=2, running=1, done=4, now_s=10.0, left_s=16.0, slurm_away=False)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what makes a terminal at which these answers are typed; it gives the questions asked."""

    def type_in(*words: str | type[BaseException]) -> list[str]:
        asked: list[str] = []
        coming: Iterator[str | type[BaseException]] = iter(words)

        def typed(question: str) -> str:
            asked.append(question)
            word = next(coming)
            if isinstance(word, str):
                return word
            raise word

        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", typed)
        return asked

    return type_in


@pytest.mark.parametrize(
    ("word", "wish"),
    [
        ("d", Wish.DETACH),
        ("c", Wish.CANCEL),
        ("G", Wish.GO_ON),
        ("go on", Wish.GO_ON),
        (" cancel ", Wish.CANCEL),
    ],
)
def test_an_answer_is_a_word_or_its_beginning(
    answer: Callable[..., list[str]], word: str, wish: Wish
) -> None:
    answer(word)
    assert _ask(NOW, polite=True, outlives_us=True) is wish


def test_an_answer_that_is_none_is_asked_for_again(answer: Callable[..., list[str]]) -> None:
    asked = answer("", "x", "yes", "dx", "c")
    assert _ask(NOW, polite=True, outlives_us=True) is Wish.CANCEL
    assert len(asked) == 5
    assert asked[0].startswith("4 of 8 jobs done.")


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_no_answer_loses_nothing(answer: Callable[..., list[str]], end: type[BaseException]) -> None:
    answer(end)
    assert _ask(NOW, polite=True, outlives_us=True) is Wish.DETACH
    assert _ask(NOW, polite=False, outlives_us=True) is Wish.DETACH


def test_a_cluster_that_ends_with_the_command_is_nothing_to_detach_from(
    answer: Callable[..., list[str]],
) -> None:
    asked = answer("d", "e")
    assert _ask(NOW, polite=True, outlives_us=False) is Wish.DETACH
    assert len(asked) == 2
    assert "etach" not in asked[0]
