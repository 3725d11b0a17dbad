from __future__ import annotations

import shlex

import pytest

from pipetune.records.redact import SECRET_NAMES, own_command, redact_line, redact_text, redact_words


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("python train.py --lr 0.1 data", "python train.py --lr 0.1 data"),
        ("python train.py --wandb-key abc --lr 0.1", "python train.py --wandb-key '***' --lr 0.1"),
        ("python train.py --api_key=abc=d --lr 0.1", "python train.py '--api_key=***' --lr 0.1"),
        ("python train.py -token abc", "python train.py -token '***'"),
        ("python train.py --use-auth --lr 0.1", "python train.py --use-auth --lr 0.1"),
        ("env HF_TOKEN=abc DATA=/data python train.py", "env 'HF_TOKEN=***' DATA=/data python train.py"),
        ("python train.py logger.password=abc +x=1", "python train.py 'logger.password=***' +x=1"),
        ("python t.py --store s3://me:pa@ss@host/b", "python t.py --store 's3://***@host/b'"),
        ("python t.py https://me@host/x?a=1&access_token=abc", "python t.py 'https://***@host/x?a=1&access_token=***'"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: ***' x"),
        ("sh -c 'A=1 TOKEN=abc t --secret \"a b\" --lr 1'", "sh -c 'A=1 TOKEN=*** t --secret *** --lr 1'"),
        ("python t.py '--password=abc d e' --lr 1", "python t.py '--password=***' --lr 1"),
        ("python -c \"login(token='abc'); run()\"", "python -c 'login(token=***); run()'"),
        ('python -c \'keys = {"api_key": "abc"}\'', "python -c 'keys = ***'"),
        ('python -c \'os.environ["API_KEY"] = "abc d"; x\'', "python -c 'os.environ[\"API_KEY\"] = ***; x'"),
        ("python train.py --token", "python train.py --token"),
        ("it's --token abc", "it's --token ***"),
        (
            "python t.py --apikey abc --API_KEYS=abc --authToken abc",
            "python t.py --apikey '***' '--API_KEYS=***' --authToken '***'",
        ),
        ("t --secretKeyBase=abc --accessTokenValue abc", "t '--secretKeyBase=***' --accessTokenValue '***'"),
        ("env APITOKENFILE=abc AUTHORISATION=abc t", "env 'APITOKENFILE=***' 'AUTHORISATION=***' t"),
    ],
)
def test_secrets_are_hidden_and_the_rest_stays(line: str, shown: str) -> None:
    assert "abc" not in shown
    assert redact_line(line) == shown
    assert redact_line(shown) == shown


@pytest.mark.parametrize("name", SECRET_NAMES)
@pytest.mark.parametrize("form", ["--my-{}", "--{}s", "--{}_file"])
def test_every_name_in_any_case(name: str, form: str) -> None:
    for option in (form.format(name), form.format(name.upper())):
        assert redact_words(["train", option, "abc"]) == ("train", option, "***")
        assert redact_words(["train", f"{option}=abc"]) == ("train", f"{option}=***")


@pytest.mark.parametrize(
    "line",
    [
        "python -u train.py '' --out 'a b' x=1",
        "python t.py --tokenizer gpt2 --keypoints 17 --author=me --keyframes 3",
        "env TOKENIZERS_PARALLELISM=false python t.py --max-tokens 512 --num-keys=8",
        "sh -c 'python t.py --max-tokens 512 tokenizer=gpt2'",
        "python -c 'run(max_tokens=256)'",
    ],
)
def test_words_without_a_secret_are_the_words(line: str) -> None:
    command = tuple(shlex.split(line))
    assert redact_words(command) == command
    assert redact_line(line) is line


@pytest.mark.parametrize("word", ["--tokens=abc", "--password=512", "--token=512", "--tokens=12345678901234567890"])
def test_a_number_is_hidden_unless_it_is_how_many_there_are(word: str) -> None:
    name, _, value = word.partition("=")
    assert redact_words([word]) == (f"{name}=***",)
    assert redact_words([name, value]) == (name, "***")


def test_a_long_word_takes_no_long_time() -> None:
    word = "key" * 40_000 + "--auth" * 20_000
    assert redact_text(word) == word


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["/opt/bin/pipetune", "sweep", "--dataset", "/a b"], "/opt/bin/pipetune sweep --dataset '/a b'"),
        (["/lib/python3.12/site-packages/pipetune/__main__.py", "sweep"], "python -m pipetune sweep"),
        (["pipetune", "sweep", "--", "train.py", "--token", "abc"], "pipetune sweep -- train.py --token '***'"),
        (["/lib/ipykernel_launcher.py", "-f", "kernel.json"], ""),
        (["tune.py"], ""),
        (["other/__main__.py"], ""),
        ([], ""),
    ],
)
def test_a_command_of_pipetunes_is_one_that_a_shell_starts(argv: list[str], shown: str) -> None:
    assert own_command(argv) == shown
