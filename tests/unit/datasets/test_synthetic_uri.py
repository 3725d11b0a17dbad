from __future__ import annotations

import pytest

from pipetune.datasets.synthetic_uri import parse_uri
from pipetune.errors import UsageError


def test_defaults_are_written_out() -> None:
    assert parse_uri("synthetic:caltech256").uri == "synthetic:caltech256?n=2000&seed=0&classes=200"
    assert parse_uri("synthetic:caltech256?n=30607").classes == 257
    assert parse_uri("synthetic:imagenet?classes=2&n=3").uri == "synthetic:imagenet?n=3&seed=0&classes=2"
    assert parse_uri("synthetic:imagenet-real?n=5").classes == 1
    assert parse_uri("synthetic:imagenet-real?seed=7").seed == 7


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (
            "synthetic:",
            "no synthetic data set ''; choose from synthetic:caltech256, synthetic:imagenet, synthetic:imag",
        ),
        ("synthetic:caltech", "did you mean synthetic:caltech256?"),
        ("synthetic:imagenet?m=5", "no option 'm'; choose from n, seed, classes"),
        ("synthetic:imagenet?class=5", "did you mean classes?"),
        ("synthetic:imagenet?n=0", "n=0 images cannot be made"),
        ("synthetic:imagenet?n=99999999", "use 1 to 9999999"),
        ("synthetic:imagenet?n=-1", "n='-1' is not a whole number"),
        ("synthetic:imagenet?n=", "n='' is not a whole number"),
        ("synthetic:imagenet?n=٣", "is not a whole number"),
        ("synthetic:imagenet?n=5&n=6", "'n' is given twice"),
        ("synthetic:imagenet?n=5&classes=6", "use 1 to 5 classes"),
        ("synthetic:imagenet?classes=0", "classes=0 with n=2000"),
        ("synthetic:imagenet?seed=1.5", "seed='1.5'"),
    ],
)
def test_wrong_uris_are_refused(uri: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_uri(uri)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
