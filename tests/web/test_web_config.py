"""The web configuration file: valid and invalid files, compared with promtool."""

import shutil
import subprocess
from pathlib import Path

import bcrypt
import pytest

from tegrascope.daemon.settings.file import ConfigError, read_settings
from tegrascope.daemon.web.web_config import WebConfig, WebRules
from tegrascope.workbench.cli import main

from .web_files import hashed, make_pair, needs_openssl, tls, users

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)


def problems(path: Path) -> list[str]:
    try:
        WebRules(path)
    except ConfigError as error:
        return [one.removeprefix(f"{path}:") for one in error.problems]
    return []


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("web")
    make_pair(made, "server")
    make_pair(made, "other")
    (made / "empty.pem").touch()
    locked = made / "locked.key"
    subprocess.run(
        [
            *("openssl", "ec", "-aes256", "-passout", "pass:x"),
            *("-in", made / "server.key", "-out", locked),
        ],
        check=True,
        capture_output=True,
    )
    return made


# The file; whether promtool accepts it; our error, if any.
PAIR = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
FILES = {
    "nothing": ("", True, None),
    "sections without keys": ("tls_server_config:\nbasic_auth_users:\n", True, None),
    "a pair": (PAIR, True, None),
    "users": (users(), True, None),
    "httpd's hash": (users().replace("$2b$", "$2y$"), True, None),
    "headers": ("http_server_config: {headers: {X-Frame-Options: deny}}", True, None),
    "no HTTP/2": ("http_server_config: {http2: false}", True, None),
    "TLS 1.3": (PAIR + "  min_version: TLS13\n", True, None),
    "clients": (
        PAIR + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: other.pem\n",
        True,
        None,
    ),
    "a section misspelt": ("tls_server_confg: {}", False, "1: tls_server_confg: unknown key; did"),
    "a key misspelt": (
        PAIR + "  minversion: TLS13\n",
        False,
        "4: tls_server_config.minversion: unknown key; did you mean min_version?",
    ),
    "no mapping": ("- a", False, "1: the file must be a mapping"),
    "no section": (
        "http_server_config: 5",
        False,
        "1: http_server_config: must be a mapping; known keys are ",
    ),
    "no users": (
        "basic_auth_users: [a]",
        False,
        "1: basic_auth_users: must be a mapping of names",
    ),
    "no YAML": ("a: [", False, "1: "),
    "a password": (
        "basic_auth_users:\n  prom: hunter2\n",
        False,
        "2: basic_auth_users.prom: this is not a bcrypt hash of a password; htpasswd",
    ),
    "no key": ("tls_server_config: {cert_file: server.pem}", False, "1: tls_server_config: TLS"),
    "no such file": (
        "tls_server_config:\n  cert_file: none.pem\n  key_file: server.key",
        False,
        "2: tls_server_config.cert_file: none.pem: No such file or directory; name a PEM file",
    ),
    "a key for a certificate": (
        "tls_server_config:\n  cert_file: server.key\n  key_file: server.key",
        False,
        "2: tls_server_config.cert_file: no certificate, or not that of the key",
    ),
    "another's key": (
        "tls_server_config:\n  cert_file: server.pem\n  key_file: other.key",
        False,
        "2: tls_server_config.cert_file: no certificate, or not that of the key (key values m",
    ),
    "a locked key": (
        "tls_server_config:\n  cert_file: server.pem\n  key_file: locked.key",
        False,
        "3: tls_server_config.key_file: the key is locked with a passphrase; openssl pkey",
    ),
    "an unknown version": (PAIR + "  min_version: TLS14\n", False, "4: tls_server_config.min_ver"),
    "an unknown policy": (
        PAIR + "  client_auth_type: Some\n",
        False,
        "4: tls_server_config.client",
    ),
    "an authority in vain": (
        PAIR + "  client_ca_file: other.pem\n",
        False,
        "1: tls_server_config: client_ca_file has no effect without client_auth_type",
    ),
    "a header of one's own": (
        "http_server_config: {headers: {X-Mine: a}}",
        False,
        "1: http_server_config.headers: no header can be set that is called X-Mine; known are",
    ),
    "a header's value": (
        "http_server_config: {headers: {X-Frame-Options: allow}}",
        False,
        "1: http_server_config.headers: X-Frame-Options is deny or sameorigin, not 'allow'",
    ),
    # Valid for node_exporter; refused here, because it can't be honoured.
    "HTTP/2": ("http_server_config: {http2: true}", True, "1: http_server_config.http2: this"),
    "TLS 1.0": (PAIR + "  min_version: TLS10\n", True, "4: tls_server_config.min_version: TLS10"),
    "a certificate of anybody": (
        PAIR + "  client_auth_type: RequireAnyClientCert\n",
        True,
        "4: tls_server_config.client_auth_type: RequireAnyClientCert takes certificates with",
    ),
    "suites": (
        PAIR + "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n",
        True,
        "4: tls_server_config.cipher_suites: this daemon does not support this key",
    ),
    "a curve": (
        PAIR + "  curve_preferences: [CurveP384]\n",
        True,
        "4: tls_server_config.curve_preferences: this daemon does not support this key",
    ),
    "an authority that is none": (
        PAIR + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: empty.pem\n",
        True,
        "5: tls_server_config.client_ca_file: holds no certificate of an authority",
    ),
    "TLS without a certificate": (
        "tls_server_config: {min_version: TLS13}",
        True,
        "1: tls_server_config: TLS needs cert_file",
    ),
}


@needs_openssl
@pytest.mark.parametrize("name", FILES)
def test_error_names_line_and_key(directory, name):
    """A file is accepted, or refused with one line: place, key and remedy."""
    text, _, said = FILES[name]
    path = directory / "web.yml"
    path.write_text(text)
    found = problems(path)
    assert len(found) == (said is not None)
    assert not found or found[0].startswith(said)


@needs_openssl
@needs_promtool
def test_promtool_accepts_the_same_files(directory):
    """Promtool accepts the same files, except those that this daemon can't honour."""
    judged = {}
    running = {}
    for number, (name, (text, _, _)) in enumerate(FILES.items()):
        path = directory / f"{number}.yml"
        path.write_text(text)
        running[name] = subprocess.Popen(
            ["promtool", "check", "web-config", path],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    for name, process in running.items():
        judged[name] = process.wait(60) == 0
    assert judged == {name: taken for name, (_, taken, _) in FILES.items()}


@pytest.mark.parametrize(
    "text",
    [
        "rate_limit: {interval: 1s, burst: 1}",
        tls("prefer_server_cipher_suites: false"),
        tls("client_ca: x"),
        tls("key: x"),
        tls("client_allowed_sans: [a]"),
        tls("min_version: TLS13", "max_version: TLS12"),
        tls("cert: x"),
        tls("client_auth_type: VerifyClientCertIfGiven"),
        'http_server_config: {headers: {Content-Security-Policy: "a\\nb"}}',
        "basic_auth_users: [prom]",
        "basic_auth_users: {prom: 12345}",
    ],
)
def test_keys_of_newer_releases_are_checked_too(tmp_path, text):
    """Keys that the promtool of current distributions does not know yet."""
    path = tmp_path / "web.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_settings(text, path, WebConfig)
    assert "12345" not in str(raised.value)


@needs_openssl
def test_check_config_checks_the_file(directory, capsys):
    web, config = directory / "named.yml", directory / "tegrascope.yaml"
    web.write_text(tls() + users())
    config.write_text(f"http: {{web_config_file: {web}}}")
    assert main(["check-config", str(config)]) == 0
    assert "named.yml: good, TLS, 1 user(s)" in capsys.readouterr().out
    web.write_text(tls(name="none"))
    assert main(["check-config", "--web.config.file", str(web)]) == 3
    assert "named.yml:1: tls_server_config.cert_file: none.pem" in capsys.readouterr().err
    assert main(["check-config", str(config)]) == 3


def test_hash_of_another_length_is_refused(tmp_path):
    path = tmp_path / "web.yml"
    for wrong in (hashed()[:-1], hashed() + "a", "$1$abc$def", "{SHA}abc"):
        path.write_text(f"basic_auth_users: {{prom: '{wrong}'}}")
        with pytest.raises(ConfigError, match="not a bcrypt hash"):
            WebRules(path)


DOCS = Path(__file__).parents[2] / "docs" / "http.md"


def example(word: str) -> str:
    """Return the first YAML block of the documentation that contains a word."""
    blocks = DOCS.read_text().split("```yaml\n")[1:]
    return next(block.partition("```")[0] for block in blocks if word in block)


@needs_openssl
@needs_promtool
def test_example_of_the_documentation_is_good(directory):
    web, scraper = directory / "web.yml", directory / "prometheus.yml"
    web.write_text(example("basic_auth_users"))
    scraper.write_text(example("scrape_configs"))
    shutil.copy(directory / "server.pem", directory / "tegrascope.pem")
    (directory / "tegrascope.password").write_text("change-me")
    (found,) = WebRules(web).current().basic_auth_users.items()
    assert found[0] in example("scrape_configs")
    assert bcrypt.checkpw(b"change-me", found[1].encode())
    for command in (("web-config", web), ("config", scraper)):
        done = subprocess.run(
            ["promtool", "check", *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
