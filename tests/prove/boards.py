"""Played boards: trees of files and stand-in programs, in their documented forms."""

import json
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from tegrascope.collectors.board.machine import Machine
from tegrascope.collectors.board.power import SOCKET
from tegrascope.workbench.doctor.software import TEGRASTATS
from tegrascope.workbench.prove.probes import BoardAccess
from tests.fakes.board_tree import AGX_ORIN, DLAS, HOST1X, SENSORS, write_board

CAPTURES = Path(__file__).parents[1] / "captures"
HWMON, ZONES = "sys/class/hwmon/hwmon1", "sys/class/thermal/thermal_zone"
RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
FORMAT = (
    "name: {}\nID: 1\nformat:\n\tfield:u32 id;\toffset:8;\tsize:4;\tsigned:0;\n\nprint fmt: {}\n"
)
TRACED = (
    '"%s class=%02x id=%u fences=%u ts=%llu", REC->name',
    '"job_id=%u begin=%llu end=%llu", REC->job_id',
)


@dataclass(frozen=True)
class Kind:
    """A kind of board: how it is played."""

    model: str
    compatible: str
    release: tuple[int, str]
    say: Callable[[], tuple[str, ...]]
    dla_cores: int
    rails: tuple[str, ...]
    zones: tuple[str, ...]
    tensorrt: str = "10.3.0.30"
    modes: tuple[str, ...] = ("MAXN", "MODE_30W")
    gpu: str = "17000000.gpu"
    sensor: Mapping[str, str] = field(default_factory=dict)


@cache
def simulated(board: str, *options: str) -> tuple[str, ...]:
    """Return lines of the simulator, made once."""
    argv = [sys.executable, "-m", "tegrascope", "simulate", "--board", board, "--interval", "1"]
    pipe = ["sh", "-c", '"$@" | head -n 60', "sh", *argv, *options]
    made = subprocess.run(pipe, capture_output=True, text=True, check=True)
    return tuple(made.stdout.splitlines())


def recorded(name: str, more: str = "") -> tuple[str, ...]:
    """Return the lines of a capture, with more behind each, without the stamps of a recorder."""
    text = (CAPTURES / f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line.rpartition("::")[2] + more for line in text.splitlines())


def kinds() -> dict[str, Kind]:
    """Return the boards by name."""
    orin = "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    return {
        "agx-orin": Kind(
            "NVIDIA Jetson AGX Orin Developer Kit",
            orin,
            (36, "4.3"),
            partial(simulated, "agx-orin-64gb"),
            2,
            RAILS,
            ("cpu", "soc2", "soc0", "tj", "soc1", "gpu", "tboard", "tdiode"),
        ),
        "orin-nx": Kind(
            "NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
            "nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234\0",
            (36, "4.4"),
            partial(simulated, "orin-nx-16gb"),
            2,
            ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"),
            ("cpu", "soc2", "soc0", "gpu", "tj", "soc1", "cv0", "cv1", "cv2"),
        ),
        "orin-nano": Kind(
            "NVIDIA Jetson Orin Nano Developer Kit Super",
            "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
            (36, "4.7"),
            partial(simulated, "orin-nano-8gb"),
            0,
            ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"),
            ("cpu", "soc2", "soc0", "gpu", "tj", "soc1"),
            modes=("MAXN_SUPER", "MODE_25W", "MODE_15W"),
        ),
        "xavier": Kind(
            "NVIDIA Jetson AGX Xavier Developer Kit",
            "nvidia,p2972-0000\0nvidia,p2888-0001\0nvidia,tegra194\0",
            (35, "4.1"),
            partial(recorded, "agx-xavier-32gb__r35"),
            2,
            ("GPU", "CPU", "SOC"),
            ("AUX", "CPU", "thermal", "Tboard", "AO", "GPU", "Tdiode", "PMIC"),
            tensorrt="8.5.2.2",
            gpu="17000000.gv11b",
        ),
        "thor": Kind(
            "NVIDIA Jetson AGX Thor Developer Kit",
            "nvidia,p3971-0080+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0",
            (38, "4.0"),
            partial(recorded, "agx-thor__r38.4.0", " VIN 47153mW/47153mW"),
            0,
            (),
            ("cpu", "tj", "soc012", "soc345"),
            tensorrt="10.13.3.9",
            modes=("MAXN", "120W"),
            gpu="gpu-gpc-0",
            sensor=SENSORS["thor"],
        ),
    }


def memory_of(release: int) -> dict[str, str]:
    """Return the files of the memory: a Thor counts nothing of NvMap."""
    meminfo = "MemAvailable: 12000000 kB\n"
    if release > 36:
        return {"proc/meminfo": meminfo}
    head = f"{'CLIENT':<18} {'PROCESS':>18} {'PID':>8} {'SIZE':>11}\n"
    rows = [("user", "alice's app", 4711, 700_000), ("user", "Xorg", 900, 300_000)]
    rows += [("nvdla", "kernel", 0, 24_000)]
    text = "".join(f"{a:<18} {b:>18} {pid:>8} {size:>10}K\n" for a, b, pid, size in rows)
    return {
        "proc/meminfo": f"{meminfo}NvMapMemUsed: 1024000 kB\n",
        "sys/kernel/debug/nvmap/iovmm/clients": f"{head}{text}{'total':<46} {1_024_000:>10}K\n",
    }


def tree_of(kind: Kind) -> dict[str, str]:
    """Return the files of a board, by path under the root."""
    release, revision = kind.release
    files = {
        path: text
        for path, text in AGX_ORIN.items()
        if not path.startswith(("sys/class/hwmon/hwmon1/", ZONES, "sys/class/devfreq/17", HOST1X))
    }
    if release != 36:
        files = {path: text for path, text in files.items() if "hwmon3" not in path}
    files |= {
        "proc/device-tree/model": f"{kind.model}\0",
        "proc/device-tree/compatible": kind.compatible,
        "proc/device-tree/serial-number": "1423019123456\0",
        "etc/nv_tegra_release": f"# R{release} (release), REVISION: {revision}, GCID: 1\n",
        "proc/thread-self/schedstat": "1234567 1234 12\n",
        **memory_of(release),
        "usr/lib/aarch64-linux-gnu/libnvinfer_plugin.so.10": "",
        "etc/systemd/system/tegrascope.service": "[Service]\nUser=tegrascope\n",
        "etc/hostname": "workbench\n",
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000:Alice:/home/alice:\n",
        "etc/nvpmodel.conf": "".join(
            f"< POWER_MODEL ID={number} NAME={name} >\nGPU MAX_FREQ {1_300_000_000 - number}\n"
            for number, name in enumerate(kind.modes)
        ),
        "var/lib/nvpmodel/status": "pmode:0001 fmode:quiet\n",
        f"sys/class/devfreq/{kind.gpu}/cur_freq": "305992999\n",
        f"sys/class/devfreq/{kind.gpu}/min_freq": "305992999\n",
        f"sys/class/devfreq/{kind.gpu}/max_freq": "305992999\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq": "1728000\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1728000\n",
        "sys/kernel/tracing/tracing_on": "1\n",
        "sys/kernel/tracing/trace_clock": "[local] global mono\n",
    }
    if kind.rails:
        files |= {f"{HWMON}/name": "ina3221\n", f"{HWMON}/samples": "1\n"}
        files |= {f"{HWMON}/update_interval": "7\n", f"{HWMON}/shunt1_resistor": "2000\n"}
        for number, rail in enumerate(kind.rails, 1):
            files |= {
                f"{HWMON}/in{number}_label": f"{rail}\n",
                f"{HWMON}/in{number}_input": "5008\n",
                f"{HWMON}/curr{number}_input": "440\n",
            }
    files |= {f"{HWMON}/{name}": text for name, text in kind.sensor.items()}
    for number, zone in enumerate(kind.zones):
        files |= {
            f"{ZONES}{number}/type": f"{zone}-thermal\n",
            f"{ZONES}{number}/trip_point_0_type": "critical\n",
            f"{ZONES}{number}/trip_point_0_temp": "104500\n",
        }
    for core in range(kind.dla_cores):
        files[f"{HOST1X}/{DLAS[core]}/power/autosuspend_delay_ms"] = "500\n"
        files[f"{HOST1X}/{DLAS[core]}/power/runtime_active_time"] = "1200\n"
        if release >= 36:
            folder = f"sys/kernel/debug/nvdla{core}/firmware"
            files |= {f"{folder}/utilization_rate": "0\n", f"{folder}/stat_window_size": "1000\n"}
    if kind.dla_cores and release >= 36:
        for event, fields in zip(("job_submit", "job_timestamps"), TRACED, strict=True):
            path = f"sys/kernel/tracing/events/nvdla_ftrace/{event}/format"
            files[path] = FORMAT.format(event, fields)
    return files


def bench_of(*devices: str) -> str:
    """Return a result of a benchmark, with the keys that count."""
    figures = {"gpu": (0.003, 0.020, 0.0), "dla0": (0.017, 0.012, 0.9), "dla1": (0.017, 0.012, 0.9)}
    rows = []
    for device in devices:
        seconds, joules, freed = figures[device]
        interval = {"value": seconds, "low": 0.99 * seconds, "high": 1.01 * seconds}
        rows.append(
            {
                "device": device,
                "status": "ok",
                "outputs": {"verdict": "good", "relative_error": 0.01},
                "built": {
                    "layer_types": {"Half": 50},
                    "placement": {"verdict": "pure_dla"},
                    "build_seconds": 81.25,
                    "int8_scales": "calibrated",
                },
                "latency": {"p50_seconds": seconds},
                "device_latency": {"p50_seconds": seconds - 2e-5},
                "stages": {"compute": {"p50_seconds": seconds}},
                "latency_seconds": interval,
                "lock_in": {"joules_per_piece": {"value": joules}, "lag_seconds": 0.02},
                "lock_in_stages": {"compute": {"joules_per_piece": {"value": joules}}},
                "net_joules_per_inference": {
                    "value": joules,
                    "low": 0.9 * joules,
                    "high": 1.1 * joules,
                },
                "gpu_freed": {"value": freed},
                "utilization": {"gpu": {"value": 0.9 - freed}, "dla1:powered": {"value": 0.98}},
                "profiled_seconds": seconds,
                "layers": [
                    {
                        "name": "n",
                        "kind": "Conv",
                        "place": device[:3],
                        "seconds": seconds / 4,
                        "flops": 900,
                    }
                    for at in range(4)
                ],
                "flags": {"fallback": 2},
            }
        )
    rows += [
        {"device": device, "status": "unavailable"}
        for device in ("dla0", "dla1")
        if device not in devices
    ]
    together = [{"status": "ok", "lanes": [{"device": "gpu"}, {"device": "dla0"}]}] * 4
    sources = {"gpu": "tegrastats" if "dla0" in devices else "nvml"}
    rounds = [
        {
            "measuring_share": 0.0004,
            "outputs": {"difference": 0.0},
            "telemetry": {"sources": sources},
        }
    ] * 2
    models = [{"accelerators": rows, "rounds": rounds}]
    return json.dumps({"models": models, "contention": {"together": together}})


def sweep_of_memory(*, has_dla: bool) -> str:
    """Return a sweep of copied, mapped and managed memory on GPU and DLA."""
    points = []
    for device in ("gpu", "dla0"):
        result = {"device": device, "status": "ok", "outputs": {"verdict": "good"}}
        if device == "dla0" and not has_dla:
            result = {"device": device, "status": "unavailable", "reason": "no DLA"}
        for memory in ("copy", "mapped", "managed"):
            points.append({"variant": {"memory": memory}, "result": result})
    return json.dumps({"models": [{"sweep": {"points": points}}]})


def trace_of(tasks: int) -> str:
    """Return lines of the trace reader."""
    lines = ["# tegrascope-dla hello cores=0,1"]
    for task in range(tasks):
        lines.append(
            f"          infer-4711 [002] ..... 12.{task:06d}: job_submit: "
            f"15880000.nvdla0 class=f3 id={task} fences=1 ts=3125000000000"
        )
        lines.append(
            f"     kworker/3:1-112 [003] ..... 12.{task:06d}: job_timestamps: "
            f"job_id={task} begin=3125000000000 end=3125000500000"
        )
    return "\n".join(lines)


SWITCHES = (
    '{"span_ns": 1009000000, "process_ns": {"4711": 600000000, "4712": 390000000}, '
    '"troubles": {}}\n'
)
TOOL = """case "$*" in
doctor*) if [ -n "$FAKE_ROOT" ]; then cat {data}/root.json; else cat {data}/doctor.json; fi;;
run*) exec sleep 60;;
inspect*) echo '{{"checks": [{{"agreed": 50, "compared": 50, "differences": []}}]}}';;
*--contention*) cat {data}/bench.json;;
bench*c.yaml*) cat {data}/root_work.json;;
exec*)
  for word in "$@"; do
    [ "$last" = --json ] && cat {data}/window.json >"$word"
    last=$word
  done;;
engines*list*) cat {data}/engines.json;;
bench*memory=*) cat {data}/memory.json;;
bench*cudla*) sleep 1; cat {data}/cudla.json;;
bench*"--on dla0 --rounds 1"*)
  for core in {powered}; do echo $(($(cat "$core") + 7800)) >"$core"; done
  for rate in {rates}; do echo 93.1234 >"$rate"; done
  sleep 2.5; cat {data}/load.json
  for rate in {rates}; do echo 0 >"$rate"; done;;
bench*) cat {data}/bench.json;;
*--again*fp16*) echo "gpu: builds the engine, which may take minutes" >&2; sleep 20;;
*--again*) echo "gpu: waits for process 4711, which builds an engine" >&2; sleep 20;;
*softmax.onnx*) echo "dla0: the layer soft runs on the GPU" >&2; exit 1;;
engines*dla0,dla1*) {both};;
engines*dla0*) {dla};;
*unknown.onnx*) echo "gpu: no UnknownOperator" >&2; exit 1;;
*calibrate*) echo "TRT-8601-EntropyCalibration2" >{work}/scales.cache;;
engines*--json*) mkdir -p {work}/models; : >{work}/models/resnet50.onnx; cat {data}/built.json
  echo "MemAvailable: 10000000 kB" >{meminfo}; sleep 0.3
  echo "MemAvailable: 12000000 kB" >{meminfo};;
engines*) echo "gpu: built, gpu_only";;
esac"""
SCRIPTS = {
    "sudo": 'shift; FAKE_ROOT=1 exec "$@"',
    "tegrastats": 'f={data}/user.txt; [ -n "$FAKE_ROOT" ] && f={data}/root.txt\n'
    'while :; do while read -r line; do echo "$line" || exit; sleep 0.02; done <$f; done',
    "nvpmodel": 'echo "NV Power Mode: MODE"; echo 1',
    "systemd-run": 'case "$*" in *--wait*) while [ "$1" != tegrascope ]; do shift; done\n'
    'shift; exec {tool} "$@";; esac',
    "curl": 'case "$*" in *127.0.0.1*) printf 200;; *) printf 000;; esac',
    "hostname": "echo 192.168.1.7",
    "sleep": '[ "$1" = 8 ] || exec /bin/sleep "$1"',
    "dmesg": 'echo "[    0.0] arch_timer: cp15 timer(s) running at 31.25MHz (phys)."; echo alice',
    "pgrep": "exit 1",
    "systemctl": 'case "$1" in is-active) cat {data}/unit;; cat) echo User=tegrascope;;'
    " start) echo active >{data}/unit;;"
    " stop) echo inactive >{data}/unit;; esac",
    "tegrascope-dla-trace": "cat {data}/trace.txt; sleep 0.3",
    "tegrascope-gpu-trace": "cat {data}/switches.txt",
    "trtexec": 'for word in Dla Gpu; do echo "[V] ${{word}}Layer: Conv_0"; done\n'
    'for w in "$@"; do case "$w" in --exportLayerInfo=*) echo \'"LayerType": "DLA"\' '
    '>"${{w#*=}}";; esac; done',
}


def play(
    root: Path, name: str = "agx-orin", *, files: Mapping[str, str] | None = None
) -> BoardAccess:
    """Write a board under a directory, and return it."""
    kind = kinds()[name]
    tree = tree_of(kind) if files is None else files
    base, data = root / "board", root / "data"
    write_board(base, tree)
    (base / "sys/kernel/tracing/instances").mkdir(parents=True, exist_ok=True)
    if name != "thor":
        (base / "dev").mkdir(exist_ok=True)
        (base / "dev/nvhost-ctxsw-gpu").touch()
    data.mkdir(parents=True)
    release = f"{kind.release[0]}.{kind.release[1]}"
    facts = {"module": "AGX Orin", "l4t": release, "jetpack": "6.2", "id": 1}
    user = [_stepped(line, at) for at, line in enumerate(kind.say())]
    load = " " if name == "thor" else " GR3D_FREQ 0% "
    plain = [line.partition(" EMC_FREQ")[0] + load + _tail(line) for line in user]
    lacks = ["EMC", "engines"] + (["DLA"] if "NVDLA" in user[0] else [])
    nvml = {
        "gives": ["GPU load", "memory by process"] if name == "thor" else [],
        "lacks": ["power"],
    }
    work = {
        "accelerators": [{"device": "dla0", "status": "ok", "flags": {"foreign_dla_activity": 2}}],
        "rounds": [{"telemetry": {"utilization": {"dla0:ftrace": {"mean_ratio": 0.9}}}}],
    }
    window = {
        "telemetry": {"utilization": {"dla0:tegrastats": {"mean_ratio": 0.8}}},
        "energy": {"gross_joules": 120.5},
    }
    findings = [
        {"check": "board", "facts": facts},
        {"check": "root_fields", "facts": {"lacks": lacks}},
        {"check": "nvml", "facts": nvml},
    ]
    found_by_root = [
        {"check": "nvml", "facts": nvml},
        *({"check": c, "level": "good"} for c in ("dla_nodes", "dla_power", "dla_events")),
    ]
    dla = 'echo "dla0: engine 3f built in 9.1 s, layers: 50 Half, pure_dla"'
    both = f"cat {data}/both.json"
    if kind.dla_cores == 0:
        both = dla = 'echo "tegrascope: dla0: this board has no DLA" >&2; exit 3'
    placed = {"placement": {"verdict": "pure_dla"}}
    on_both = {"dla0": {"is_cached": False, **placed}, "dla1": {"is_cached": True, **placed}}
    wanted = {"circumstances": {"wanted_memory_bytes": 3_630_000_000}}
    rootly = [line.replace("NVDLA0 off", "NVDLA0 45%@1600") for line in user[:40]]
    for file, text in {
        "doctor.json": json.dumps({"findings": findings}),
        "user.txt": "\n".join(plain[:40]) + "\n",
        "root.txt": "\n".join(rootly) + "\n",
        "root.json": json.dumps({"findings": found_by_root}),
        "root_work.json": json.dumps({"models": [work]}),
        "window.json": json.dumps(window),
        "engines.json": json.dumps({"engines": [{"parts": {"machine_dla_firmware": "1.4"}}]}),
        "both.json": json.dumps({"engines": on_both}),
        "built.json": json.dumps({"engines": {"gpu": {"is_cached": False, **wanted}}}),
        "bench.json": bench_of("gpu", *["dla0", "dla1"][: kind.dla_cores]),
        "memory.json": sweep_of_memory(has_dla=kind.dla_cores > 0),
        "cudla.json": bench_of("dla0"),
        "load.json": bench_of("dla0"),
        "trace.txt": trace_of(50) + "\n",
        "switches.txt": 5 * SWITCHES,
        "unit": "inactive\n",
    }.items():
        (data / file).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    words = {
        "data": data,
        "tool": base / "usr/bin/tool",
        "work": root / "state/prove/work",
        "powered": " ".join(
            map(str, sorted(base.glob(f"{HOST1X}/*/power/runtime_active_time"))[:1])
        ),
        "rates": " ".join(
            map(str, sorted(base.glob("sys/kernel/debug/nvdla0/firmware/utilization_rate")))
        ),
        "dla": dla,
        "both": both,
        "meminfo": base / "proc/meminfo",
    }
    programs = base / "usr/bin"
    programs.mkdir(parents=True)
    venv = base / "usr/lib/tegrascope/venv/bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text("#!/bin/sh\necho ok\n", encoding="utf-8")
    (venv / "python").chmod(0o755)
    for program, body in {**SCRIPTS, "tool": TOOL}.items():
        path = programs / program
        path.write_text(f"#!/bin/sh\n{body.format(**words)}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return board_at(root, name)


def board_at(root: Path, name: str = "agx-orin") -> BoardAccess:
    """Return a board that was written there."""
    base = root / "board"
    programs = base / "usr/bin"
    machine = PlayedMachine(
        root=base,
        environ={"PATH": f"{programs}:/usr/bin:/bin", "USER": "alice", "HOSTNAME": "workbench"},
        uid=1000,
        tensorrt=kinds()[name].tensorrt,
        cuda="12.6.0" if name == "xavier" else "12.2.0",
    )
    return BoardAccess(
        machine,
        root / "state/prove/work",
        tool=(str(programs / "tool"),),
        sudo=(str(programs / "sudo"), "-n"),
        line_seconds=0.02,
    )


def _stepped(line: str, at: int) -> str:
    """Return a line with a rail of AGX Orin that moves by whole steps of 0.4 W."""
    return re.sub(r"VDD_CPU_CV \d+mW", f"VDD_CPU_CV {397 * (1 + at % 5)}mW", line)


def serve(board: BoardAccess, lines: Sequence[str], where: str = TEGRASTATS.path) -> socket.socket:
    """Serve lines at a socket of the service, for one client, until it is closed."""
    path = board.machine.at(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def answer() -> None:
        with suppress(OSError):
            client, _ = server.accept()
            with client:
                client.sendall("".join(f"{line}\n" for line in lines).encode())
                client.recv(1)

    if lines:
        threading.Thread(target=answer, daemon=True).start()
    return server


def serve_modes(board: BoardAccess, *, reboots: bool) -> socket.socket:
    """Play the power unit for one client; on a board that reboots, MAXN needs that."""
    server = serve(board, (), str(SOCKET))

    def answer() -> None:
        with suppress(OSError):
            client, _ = server.accept()
            with client, client.makefile("r", encoding="utf-8") as asked:
                for line in asked:
                    refused = reboots and "MAXN" in line
                    words = "error power mode MAXN needs a reboot: set it by hand"
                    client.sendall(f"{words if refused else 'ok mode=1'}\n".encode())

    threading.Thread(target=answer, daemon=True).start()
    return server


def _tail(line: str) -> str:
    """Return temperatures and rails of a line, which every user sees."""
    words = line.split()
    start = next(at for at, word in enumerate(words) if "@" in word and word.endswith("C"))
    return " ".join(words[start:])


@dataclass(frozen=True)
class PlayedMachine(Machine):
    """A machine whose packages are an attribute."""

    tensorrt: str = "10.3.0.30"
    cuda: str = "12.2.0"

    def package(self, name: str) -> str | None:
        return {"tensorrt": self.tensorrt, "cuda-python": self.cuda}.get(name)
