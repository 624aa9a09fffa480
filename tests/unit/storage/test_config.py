"""One place turns options and environment into settings for Lance and boto3, and nothing prints them."""

from __future__ import annotations

import pickle

import pytest

from omnigraph_spark.errors import OptionError
from omnigraph_spark.options import Scope, parse_options
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.locations import join, normalize_root, object_path

SECRET = "s3cr3t-value"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN REGION DEFAULT_REGION ALLOW_HTTP S3_FORCE_PATH_STYLE"
    for name in [*names.split(), "ENDPOINT_URL", "ENDPOINT_URL_S3"]:
        monkeypatch.delenv(f"AWS_{name}", raising=False)


def test_options_become_both_kinds_of_settings() -> None:
    """The same options configure Lance and boto3; http and path style follow from a custom endpoint."""
    config = StorageConfig.resolve(
        {"endpoint": "http://h:1", "access_key_id": "k", "secret_access_key": SECRET, "region": "r"}
    )
    lance = config.lance_options()
    assert lance["aws_endpoint"] == "http://h:1"
    assert lance["aws_secret_access_key"] == SECRET
    assert lance["allow_http"] == "true"
    assert lance["aws_virtual_hosted_style_request"] == "false"
    assert config.client_arguments() == {
        "endpoint_url": "http://h:1",
        "aws_access_key_id": "k",
        "aws_secret_access_key": SECRET,
        "region_name": "r",
    }
    assert config.path_style


@pytest.mark.parametrize("key", ["accessKeyId", "access_key_id", "ACCESS-KEY.ID", "aws_access_key_id"])
def test_spellings_of_one_setting_are_one(key: str) -> None:
    """Keys ignore case and separators."""
    assert StorageConfig.resolve({key: "k"}).client_arguments() == {"aws_access_key_id": "k"}


def test_the_environment_fills_what_options_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option wins over the environment; of two variables the more specific one wins."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special:1")
    monkeypatch.setenv("AWS_REGION", "env-region")
    config = StorageConfig.resolve({"region": "option-region"})
    assert config.client_arguments() == {"endpoint_url": "http://special:1", "region_name": "option-region"}


def test_a_key_from_options_takes_no_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session token belongs to the key it came with; mixing two identities would be refused by any store."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env")
    chosen = StorageConfig.resolve({"access_key_id": "k", "secret_access_key": SECRET}).client_arguments()
    assert chosen == {"aws_access_key_id": "k", "aws_secret_access_key": SECRET}
    assert StorageConfig.resolve().client_arguments()["aws_session_token"] == "env"


def test_unknown_keys_reach_lance_untouched() -> None:
    """A store feature we have not heard of still works."""
    assert StorageConfig.resolve({"aws_sse_kms_key_id": "x"}).lance_options()["aws_sse_kms_key_id"] == "x"


def test_a_flag_is_true_or_false() -> None:
    """Anything else is an OptionError that names the option and not the value."""
    with pytest.raises(OptionError, match=r"storage\.allow_http") as caught:
        StorageConfig.resolve({"allow_http": SECRET})
    assert SECRET not in str(caught.value)


def test_no_secret_in_print_and_the_whole_in_pickle() -> None:
    """A repr names settings without values, and a pickled copy is equal."""
    config = StorageConfig.resolve({"secret_access_key": SECRET, "x_custom": "custom-value"})
    options = parse_options({"node": "P", "Storage.Secret_Access_Key": SECRET}, scope=Scope.READ)
    assert options.storage
    for text in (repr(config), str(config), repr(options), repr(config.frozen())):
        assert SECRET not in text
        assert "custom-value" not in text
    assert "secret_access_key" in repr(config)
    copy = pickle.loads(pickle.dumps(config.frozen()))
    assert copy.identity() == config.identity()


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("s3://b/p/", "s3://b/p"),
        ("s3a://b/p", "s3://b/p"),
        ("/data/g/", "/data/g"),
        ("file:///data/g%20h", "/data/g h"),
    ],
)
def test_a_root_has_one_spelling(given: str, normal: str) -> None:
    """All spellings of a place are one root."""
    assert normalize_root(given) == normal


def test_a_store_we_cannot_reach_is_refused() -> None:
    """An unknown scheme and an empty path are OptionErrors."""
    with pytest.raises(OptionError, match="gs"):
        normalize_root("gs://b/p")
    with pytest.raises(OptionError, match="empty"):
        normalize_root(" ")


def test_paths_are_joined_and_reported_without_scheme() -> None:
    """Object paths carry neither scheme nor bucket nor leading slash."""
    assert join("s3://b/p", "nodes/1", "/x") == "s3://b/p/nodes/1/x"
    assert object_path("s3://b/p/x") == "p/x"
    assert object_path("/data/g") == "data/g"
