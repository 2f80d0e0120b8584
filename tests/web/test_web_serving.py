"""TLS and users over real sockets, compared with node_exporter and the same file."""

import asyncio
import base64
import http.client
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import bcrypt
import pytest

from tegrascope.collectors.application.client import ApiClient, RefusedError, UnreachableError
from tegrascope.collectors.base import SystemClock
from tegrascope.collectors.board.machine import Machine
from tegrascope.daemon.web.authentication import Passwords
from tegrascope.daemon.web.server import ConnectionLimits
from tegrascope.daemon.web.web_config import WebRules
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.doctor.software import judge_daemon
from tests.fakes.processes import PATIENCE_SECONDS
from tests.monitoring.servers import LISTENING, wait_for

from .page_server import DEFAULT, Server, until_closed
from .web_files import make_pair, needs_openssl, tls, users

TLS_1_2 = ssl.TLSVersion.TLSv1_2

pytestmark = needs_openssl
needs_node_exporter = pytest.mark.skipif(
    shutil.which("prometheus-node-exporter") is None,
    reason="node_exporter is not installed: apt install prometheus-node-exporter",
)

NO_RUNS = {"runs": [], "not_stored": [], "active": {}}


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pems")
    make_pair(made, "server")
    make_pair(made, "next")
    make_pair(made, "client", "DNS:scraper", "IP:::1")
    return made


class Site:
    """A directory with certificates and the web file, and the servers that use it."""

    def __init__(self, directory: Path, pems: Path) -> None:
        self.directory = directory
        for pem in pems.iterdir():
            shutil.copy(pem, directory)
        self.path = directory / "web.yml"
        self.server: Server | None = None
        self.node: subprocess.Popen[bytes] | None = None

    def write(self, *sections: str) -> None:
        self.path.write_text("".join(sections))

    def start(self, *sections: str, limits: ConnectionLimits = DEFAULT) -> tuple[str, int]:
        self.write(*sections)
        self.server = Server(self.directory, WebRules(self.path), limits)
        return self.server.address

    def start_node_exporter(self) -> tuple[str, int]:
        log = self.directory / "node_exporter.log"
        with log.open("w") as told:
            self.node = subprocess.Popen(
                [
                    "prometheus-node-exporter",
                    f"--web.config.file={self.path}",
                    "--web.listen-address=127.0.0.1:0",
                    *("--collector.disable-defaults", "--collector.time"),
                ],
                stderr=told,
            )
        found = wait_for(lambda: LISTENING.search(log.read_text()), told=log)
        return "127.0.0.1", int(found[1])

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
        if self.node is not None:
            self.node.kill()
            self.node.wait()

    def ask(
        self,
        address: tuple[str, int],
        scheme: str = "https",
        user: str = "",
        client: str = "",
        highest: "ssl.TLSVersion | None" = None,
        path: str = "/metrics",
        **headers: str,
    ) -> str:
        """Return status, some headers and the error text of an answer; ``refused`` without one."""
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client:
            context.load_cert_chain(
                self.directory / f"{client}.pem", self.directory / f"{client}.key"
            )
        if highest is not None:
            context.maximum_version = highest
        peer = (
            http.client.HTTPConnection(*address, timeout=60)
            if scheme == "http"
            else http.client.HTTPSConnection(*address, timeout=60, context=context)
        )
        try:
            with closing(peer):
                peer.request("GET", path, headers=headers)
                answer = peer.getresponse()
                body = answer.read()
        except (OSError, http.client.HTTPException):
            return "refused"
        told = [str(answer.status)]
        told += [f"{key}={answer.headers[key]}" for key in ("WWW-Authenticate", "X-Frame-Options")]
        return " ".join([*told, body.decode() if answer.status >= 400 else ""])


@pytest.fixture
def site(tmp_path: Path, pems: Path) -> Iterator[Site]:
    made = Site(tmp_path, pems)
    yield made
    made.stop()


REQUIRED = ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: client.pem")
SITES = {
    "neither": ("{}",),
    "users": (users(), "http_server_config: {headers: {X-Frame-Options: deny}}"),
    "TLS": (tls(),),
    "both": (tls(), users(), "http_server_config: {headers: {X-Frame-Options: sameorigin}}"),
    "clients": (tls(*REQUIRED),),
    "clients if given": (tls("client_auth_type: VerifyClientCertIfGiven", REQUIRED[1]), users()),
    "TLS 1.3": (tls("min_version: TLS13"),),
    "TLS 1.2": (
        tls("max_version: TLS12"),
        "http_server_config: {http2: false}",
    ),
}
QUESTIONS: list[dict[str, object]] = [
    {"scheme": "http"},
    {"scheme": "http", "user": "prom:pw"},
    {"scheme": "http", "user": "prom:no"},
    {},
    {"user": "prom:pw"},
    {"user": "prom:pw"},
    {"user": "prom:no"},
    {"user": "ghost:pw"},
    {"user": "prom"},
    {"Authorization": "Bearer pw"},
    {"Authorization": "Basic ???"},
    {"client": "client"},
    {"client": "next"},
    {"client": "client", "user": "prom:pw", "highest": TLS_1_2},
]


@needs_node_exporter
@pytest.mark.parametrize("name", SITES)
def test_answers_are_those_of_node_exporter(site, name):
    ours = site.start(*SITES[name])
    theirs = site.start_node_exporter()
    for question in QUESTIONS:
        assert site.ask(ours, **question) == site.ask(theirs, **question), question


@needs_node_exporter
def test_changes_come_into_force_as_in_node_exporter(site, caplog):
    """Users, headers, a bad file and its correction apply to the next request."""
    caplog.set_level(logging.INFO)
    ours, theirs = site.start(tls(), users()), site.start_node_exporter()
    steps = [
        (tls(), users("other")),
        (tls(),),
        (tls(), users(), "http_server_config: {headers: {X-Frame-Options: deny}}"),
        (tls(), "nonsense: 1"),
        (tls(name="none"), users()),
        (users(),),
        (tls(*REQUIRED), users()),
        (tls(name="next"), users()),
    ]
    for step in steps:
        site.write(*step)
        for question in QUESTIONS[3:]:
            assert site.ask(ours, **question) == site.ask(theirs, **question), (step, question)
    site.path.unlink()
    assert site.ask(ours, user="prom:pw") == site.ask(theirs, user="prom:pw") == "refused"
    refused = [one.message for one in caplog.records if "is refused until" in one.message]
    assert len(refused) == 4
    assert "web.yml:2: nonsense: unknown key" in refused[0]
    assert "requests are answered again" in caplog.text


def test_status_page_keeps_the_policy_that_it_needs(site):
    """A configured header does not replace the page's own."""
    said = "default-src 'self'"
    address = site.start(f'http_server_config: {{headers: {{Content-Security-Policy: "{said}"}}}}')
    found = {}
    for path in ("/", "/metrics"):
        with closing(http.client.HTTPConnection(*address, timeout=60)) as peer:
            peer.request("GET", path)
            found[path] = peer.getresponse().headers.get_all("Content-Security-Policy")
    assert found["/metrics"] == [said]
    assert [policy.split(";")[0] for policy in found["/"]] == ["default-src 'none'"]


def test_own_client_reports_a_bad_file(site):
    _, port = site.start("http_server_config: {http2: false}")
    assert ApiClient(f"http://127.0.0.1:{port}").get("/api/v1/runs") == NO_RUNS
    site.write("nonsense: 1")
    with pytest.raises(RefusedError, match="answers 500: see its log: its web configuration"):
        ApiClient(f"http://127.0.0.1:{port}").get("/api/v1/runs")


def test_connection_outlives_a_bad_file_but_is_not_answered(site):
    """An open connection gets 500 while the file is bad, and 200 when it is corrected."""
    context = ssl.create_default_context(cafile=site.directory / "server.pem")
    address = site.start(tls(), users())
    headers = {"Authorization": "Basic " + base64.b64encode(b"prom:pw").decode()}
    with closing(http.client.HTTPSConnection(*address, timeout=60, context=context)) as peer:
        for sections, status in (
            ((tls(), users()), 200),
            (("a: [",), 500),
            ((tls(), users()), 200),
        ):
            site.write(*sections)
            peer.request("GET", "/metrics", headers=headers)
            with peer.getresponse() as answer:
                assert (answer.status, bool(answer.read())) == (status, True)


def test_certificate_rotates_under_open_connections(site):
    address = site.start(tls())

    def connect(name: str) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=site.directory / f"{name}.pem")
        peer = http.client.HTTPSConnection(*address, timeout=60, context=context)
        peer.request("GET", "/healthz")
        assert peer.getresponse().read() == b"ok\n"
        return peer

    with closing(connect("server")) as old:
        for kind in ("pem", "key"):
            shutil.copy(site.directory / f"next.{kind}", site.directory / f"server.{kind}")
        with closing(connect("next")) as new:
            for peer in (old, new):
                peer.request("GET", "/metrics")
                assert b"tegrascope_build_info" in peer.getresponse().read()


def test_client_without_a_certificate_is_refused(site):
    address = site.start(tls(*REQUIRED))
    assert site.ask(address, client="client").split()[0] == "200"
    assert site.ask(address) == "refused"


class Verifier:
    """A stand-in for bcrypt that counts."""

    def __init__(self) -> None:
        self.verified: list[tuple[bytes, bytes]] = []

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.verified.append((password, hashed))
        return hashed.endswith(b"/" + password)


class FixedClock(SystemClock):
    """A clock that the test sets."""

    seconds = 100.0

    def monotonic_ns(self) -> int:
        return round(self.seconds * 1e9)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_password_is_verified_once():
    """Right or wrong, a password costs bcrypt's time once per hash."""
    verifier = Verifier()
    passwords = Passwords(FixedClock(), verifier, burst=1000)

    async def ask(password: str, hashed: str) -> "int | None":
        return await passwords.refusal(basic("prom", password), {"prom": hashed}, "10.0.0.1")

    async def play() -> None:
        for hashed, other in (("$2b$10$/pw", "no"), ("$2b$10$/no", "pw")):
            right = hashed.rpartition("/")[2]
            for _ in range(3):
                assert await ask(right, hashed) is None
                assert await ask(other, hashed) == 401
        assert len(verifier.verified) == 4
        for number in range(500):
            assert await ask(str(number), "$2b$10$/no") == 401
        before = len(verifier.verified)
        assert await ask("no", "$2b$10$/no") is None
        assert len(verifier.verified) == before

    asyncio.run(play())


def test_unknown_user_costs_as_much_as_a_known_one():
    verifier = Verifier()
    passwords = Passwords(FixedClock(), verify=verifier)
    users = {"prom": "$2b$10$/pw", "careful": "$2b$12$/pw"}

    async def play() -> None:
        assert await passwords.refusal(basic("ghost", "pw"), users, "10.0.0.1") == 401

    asyncio.run(play())
    assert verifier.verified == [(b"pw", b"$2b$12$/pw")]


class SlowVerifier(Verifier):
    """Takes a second of the clock for each password."""

    def __init__(self, clock: FixedClock) -> None:
        super().__init__()
        self._clock = clock

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self._clock.seconds += 1.0
        return super().__call__(password, hashed)


PROM = {"prom": "$2b$10$/pw"}


def test_wrong_passwords_are_limited_per_address():
    """After a burst, a wrong one gets 429; right passwords and other addresses do not."""
    verifier, clock = Verifier(), FixedClock()
    passwords = Passwords(clock, verifier, burst=3, interval_seconds=10)

    async def play() -> None:
        async def ask(password: str, address: str) -> "int | None":
            return await passwords.refusal(basic("prom", password), PROM, address)

        assert await ask("pw", "10.0.0.9") is None
        told = await asyncio.gather(*(ask(f"{number}", "10.0.0.1") for number in range(20)))
        assert sorted(told) == [401] * 3 + [429] * 17
        assert await ask("pw", "10.0.0.1") is None  # verified already for another address
        assert await ask("a", "10.0.0.2") == 401
        neighbours = [await ask(f"n{number}", f"2001:db8::{number}") for number in range(4)]
        assert neighbours == [401, 401, 401, 429]  # a host has all addresses of its network
        clock.seconds += 10.0
        assert [await ask(word, "10.0.0.1") for word in ("b", "c")] == [401, 429]
        clock.seconds += 9.0
        assert await ask("d", "10.0.0.1") == 429
        clock.seconds += 1000.0
        assert [await ask(word, "10.0.0.1") for word in "efgh"] == [401, 401, 401, 429]

    asyncio.run(play())


def test_right_password_is_accepted_while_30_others_guess_from_its_address():
    """It waits for those that came before it, and for none that came later."""
    clock = FixedClock()
    verifier = SlowVerifier(clock)
    passwords = Passwords(
        clock,
        verifier,
        burst=3,
        interval_seconds=1000,
        sleep=sleeper(clock),
        core_ns=clock.monotonic_ns,
    )
    answers: list[int | None] = []
    over = False

    async def play() -> None:
        nonlocal over

        async def guess(guesser: int) -> None:
            number = 0
            while not over:
                password = f"{guesser}.{number}"
                answers.append(await passwords.refusal(basic("prom", password), PROM, "10.0.0.1"))
                number += 1

        guessers = [asyncio.ensure_future(guess(number)) for number in range(30)]
        while len(answers) < 40:
            await asyncio.sleep(0)
        assert await passwords.refusal(basic("prom", "pw"), PROM, "10.0.0.1") is None
        assert len(answers) <= 40 + 31
        over = True
        await asyncio.gather(*guessers)

    asyncio.run(play())
    assert answers.count(401) == 3
    assert None not in answers


def sleeper(clock: FixedClock) -> "Callable[[float], Awaitable[None]]":
    """Return a sleep that only sets the clock."""

    async def sleep(seconds: float) -> None:
        clock.seconds += seconds

    return sleep


def test_guessers_of_many_addresses_cost_a_tenth_of_the_time():
    clock = FixedClock()
    verifier = SlowVerifier(clock)
    passwords = Passwords(
        clock, verifier, burst=0, sleep=sleeper(clock), core_ns=clock.monotonic_ns
    )

    async def play() -> None:
        asked = [
            passwords.refusal(basic("prom", str(number)), PROM, f"10.0.{number}.1")
            for number in range(50)
        ]
        assert set(await asyncio.gather(*asked)) == {429}

    asyncio.run(play())
    assert len(verifier.verified) == 50
    # The first begins at once, and each of the others nine times its own length later.
    assert clock.seconds == pytest.approx(100 + 50 + 49 * 9)


class GatedVerifier(Verifier):
    """A stand-in for bcrypt that begins when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        assert self.gate.wait(PATIENCE_SECONDS)
        return super().__call__(password, hashed)


def test_number_of_requests_that_wait_is_limited():
    """Beyond it, no password is verified; a request that leaves its place gives it back."""
    verifier = GatedVerifier()
    passwords = Passwords(FixedClock(), verifier, burst=0, waiting_at_most=(3, 5))

    async def play() -> None:
        for _ in range(2):
            before = len(verifier.verified)
            verifier.gate.clear()
            asked = [
                asyncio.ensure_future(
                    passwords.refusal(
                        basic("prom", f"{before}.{place}.{number}"), PROM, f"10.0.0.{place}"
                    )
                )
                for place in range(2)
                for number in range(10)
            ]
            # All of them ask before the first one is verified and gives its place back.
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            verifier.gate.set()
            assert set(await asyncio.gather(*asked)) == {429}
            assert len(verifier.verified) == before + 5
        assert await passwords.refusal(basic("prom", "pw"), PROM, "10.0.0.1") is None

    asyncio.run(play())


def test_password_that_several_requests_wait_with_is_verified_once():
    verifier = Verifier()
    passwords = Passwords(FixedClock(), verifier, burst=0)

    async def play() -> None:
        asked = [passwords.refusal(basic("prom", "pw"), PROM, "10.0.0.1") for _ in range(5)]
        assert await asyncio.gather(*asked) == [None] * 5

    asyncio.run(play())
    assert len(verifier.verified) == 1


def test_guessers_wait_for_each_other_and_delay_another_client_once():
    """An address has one password in the queue, however many it sends."""
    order: list[bytes] = []
    passwords = Passwords(FixedClock(), lambda password, _: bool(order.append(password)), burst=100)

    async def play() -> None:
        guesses = [
            asyncio.ensure_future(
                passwords.refusal(basic("prom", str(number)), {"prom": "$2b$10$"}, "10.0.0.1")
            )
            for number in range(20)
        ]
        while not order:
            await asyncio.sleep(0)
        await passwords.refusal(basic("prom", "other"), {"prom": "$2b$10$"}, "10.0.0.2")
        await asyncio.gather(*guesses)

    asyncio.run(play())
    assert order.index(b"other") <= 3


def test_long_password_is_good(site):
    """Only the first 72 bytes count, as with htpasswd and Go."""
    password = "x" * 80
    made = bcrypt.hashpw(password[:72].encode(), bcrypt.gensalt(4)).decode()
    address = site.start(f"basic_auth_users: {{prom: '{made}'}}")
    assert site.ask(address, scheme="http", user=f"prom:{password}").startswith("200")


def test_token_opens_what_changes_and_what_reads(site):
    """The password reads; the token reads and changes, in either header."""
    site.start(users())
    ask = site.server.ask
    basic = {"Authorization": "Basic " + base64.b64encode(b"prom:pw").decode()}
    header = {"X-Tegrascope-Token": "secret"}
    bearer = {"Authorization": "Bearer secret"}
    wrong = [{}, {"X-Tegrascope-Token": "wrong"}, {"Authorization": "Bearer wrong"}]
    for path in ("/metrics", "/healthz", "/readyz", "/", "/api/v1/runs"):
        for good in (basic, header, bearer):
            assert ask("GET", path, **good)[0] == 200
        for bad in wrong:
            assert ask("GET", path, **bad)[0] == 401
    body = b'{"workload": "w"}'
    for good in (header, bearer, {**basic, **header}):
        assert ask("POST", "/api/v1/runs", body, **good)[0] == 202
    for bad in (*wrong, basic, {**basic, "X-Tegrascope-Token": "wrong"}):
        assert ask("POST", "/api/v1/runs", body, **bad)[0] == 401
    assert site.server.asked == ["w"] * 3


def test_own_client_speaks_tls_and_passwords(site, monkeypatch):
    _, port = site.start(tls(*REQUIRED), users())
    (site.directory / "token").write_text("secret\n")
    monkeypatch.setenv("TEGRASCOPE_TOKEN_FILE", str(site.directory / "token"))
    where = f"https://prom:p%77@127.0.0.1:{port}"
    with pytest.raises(UnreachableError, match="TEGRASCOPE_CA_FILE") as raised:
        ApiClient(where).get("/api/v1/runs")
    assert "p%77" not in str(raised.value)
    monkeypatch.setenv("TEGRASCOPE_CA_FILE", str(site.directory / "server.pem"))
    with pytest.raises(UnreachableError):  # it asks for a certificate
        ApiClient(where).get("/api/v1/runs")
    monkeypatch.setenv("TEGRASCOPE_CERT_FILE", str(site.directory / "client.pem"))
    monkeypatch.setenv("TEGRASCOPE_KEY_FILE", str(site.directory / "client.key"))
    assert ApiClient(where).get("/api/v1/runs") == NO_RUNS
    assert ApiClient(where).post("/api/v1/runs", b'{"workload": "w"}') == {"run_id": "0193"}
    stranger = ApiClient(f"https://127.0.0.1:{port}")
    with pytest.raises(RefusedError, match="wants a user and a password"):
        stranger.get("/api/v1/runs")
    with pytest.raises(RefusedError, match="does not take this user and password"):
        ApiClient(where.replace("p%77", "wrong")).get("/api/v1/runs")
    assert stranger.post("/api/v1/windows", b"{}") == {"run_id": "0194"}
    assert stranger.get("/api/v1/runs") == NO_RUNS
    with pytest.raises(UnreachableError, match="https://"):
        ApiClient(f"http://127.0.0.1:{port}").get("/api/v1/runs")
    monkeypatch.setenv("TEGRASCOPE_CA_FILE", str(site.directory / "none.pem"))
    with pytest.raises(UserError, match="TLS can't be set up"):
        ApiClient(where).get("/api/v1/runs")


def test_silent_and_wrong_clients_delay_no_handshake(site, caplog):
    """Clients that send nothing, half a greeting, HTTP or noise to the TLS port."""
    address = site.start(tls(), limits=ConnectionLimits(header_seconds=3.0))
    greeting = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    spoken = [
        b"",
        greeting,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x01",
        b"\x16\x03\x01\x00\x02\xff\xff",
    ]
    peers = []
    for words in spoken * 4:
        peers.append(socket.create_connection(address, timeout=60))
        peers[-1].sendall(words)
        assert site.ask(address).startswith("200")
    told = [until_closed(peer) for peer in peers]
    assert all(b"400 Bad Request" in one for one in told[2::5])
    assert not any(b"HTTP" in one for one in told[0::5] + told[1::5] + told[3::5])
    assert site.ask(address).startswith("200")
    assert not caplog.records


def test_plain_start_takes_tls_at_the_next(site, caplog):
    """If the file gains TLS while plain HTTP is served, the log says so and HTTP goes on."""
    address = site.start(users())
    site.write(tls(), users())
    assert site.ask(address, scheme="http", user="prom:pw").startswith("200")
    assert "TLS comes into force at the next start" in caplog.text
    assert site.ask(address) == "refused"


def test_doctor_knows_a_guarded_daemon(site):
    for sections, word in (((tls(), users()), "TLS"), ((users(),), "a password")):
        address = site.start(*sections)
        answer = Machine().get(*address, "/healthz")
        finding = judge_daemon("robot:9754", answer, answer)
        assert (finding.level, finding.blocking) == ("note", False)
        assert f"asks for {word}" in finding.message
        site.stop()


def test_bodies_are_json_for_the_api(site):
    site.start(users(), "http_server_config: {headers: {X-Frame-Options: deny}}")
    status, headers, body = site.server.ask("GET", "/none", **{"X-Tegrascope-Token": "secret"})
    assert (status, headers["X-Frame-Options"]) == (404, "deny")
    assert json.loads(body)["error"] == "there is no such path"
