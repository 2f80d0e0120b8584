"""The files of a board under a directory, written from documented forms; no board was at hand.

Sources: the drivers of Jetson Linux R35 and R36 (over-current events, thermal trip events), the
kernel's ABI for hwmon, thermal, devfreq and runtime power management, the Jetson Linux Developer
Guide.
"""

from collections.abc import Mapping
from pathlib import Path

HOST1X = "sys/devices/platform/bus@0/13e00000.host1x"
DLAS = ("15880000.nvdla0", "158c0000.nvdla1")

AGX_ORIN: Mapping[str, str] = {
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "proc/device-tree/compatible": (
        "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    ),
    "proc/sys/kernel/osrelease": "5.15.148-tegra\n",
    "proc/meminfo": (
        "MemTotal:       64349684 kB\nMemFree:        50000000 kB\nMemAvailable:   61000000 kB\n"
        "NvMapMemFree:      94784 kB\nNvMapMemUsed:     805068 kB\n"
    ),
    "etc/nv_tegra_release": (
        "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, "
        "DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
    ),
    "etc/nvpmodel.conf": (
        "# a comment of < POWER_MODEL ID=2 NAME=NO >\n"
        "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n"
        "< POWER_MODEL ID=2 NAME=MODE_30W >\nGPU MAX_FREQ 612000000\n"
        "< PM_CONFIG DEFAULT=2 >\n"
    ),
    "var/lib/nvpmodel/status": "pmode:0002 fmode:quiet",
    "sys/class/hwmon/hwmon0/name": "pwmfan\n",
    "sys/class/hwmon/hwmon0/pwm1": "51\n",
    "sys/class/hwmon/hwmon0/pwm1_enable": "1\n",
    "sys/class/hwmon/hwmon1/name": "ina3221\n",
    "sys/class/hwmon/hwmon1/samples": "1\n",
    "sys/class/hwmon/hwmon1/update_interval": "7\n",
    "sys/class/hwmon/hwmon1/shunt1_resistor": "2000\n",
    "sys/class/hwmon/hwmon1/in1_label": "VDD_GPU_SOC\n",
    "sys/class/hwmon/hwmon1/in1_input": "20008\n",
    "sys/class/hwmon/hwmon1/curr1_input": "160\n",
    "sys/class/hwmon/hwmon1/curr1_max": "81900\n",
    "sys/class/hwmon/hwmon1/curr1_crit": "81900\n",
    "sys/class/hwmon/hwmon1/in2_label": "NC\n",
    "sys/class/hwmon/hwmon1/in2_input": "0\n",
    "sys/class/hwmon/hwmon1/curr2_input": "0\n",
    "sys/class/hwmon/hwmon1/in7_label": "sum of shunt voltages\n",
    "sys/class/hwmon/hwmon1/in7_input": "0\n",
    "sys/class/hwmon/hwmon3/name": "soctherm_oc\n",
    "sys/class/hwmon/hwmon3/oc1_event_cnt": "0\n",
    "sys/class/hwmon/hwmon3/oc1_throt_en": "1\n",
    "sys/class/hwmon/hwmon3/oc2_event_cnt": "15\n",
    "sys/class/hwmon/hwmon3/oc2_throt_en": "1\n",
    "sys/class/hwmon/hwmon3/oc3_event_cnt": "27390\n",
    "sys/class/hwmon/hwmon3/oc3_throt_en": "1\n",
    "sys/class/thermal/cooling_device0/type": "cpufreq-cpu0\n",
    "sys/class/thermal/cooling_device0/cur_state": "3\n",
    "sys/class/thermal/cooling_device0/max_state": "12\n",
    "sys/class/thermal/cooling_device1/type": "gpu-throttle-alert\n",
    "sys/class/thermal/cooling_device1/cur_state": "0\n",
    "sys/class/thermal/cooling_device1/max_state": "2\n",
    "sys/class/thermal/cooling_device2/type": "hot-surface-alert\n",
    "sys/class/thermal/cooling_device2/cur_state": "1\n",
    "sys/class/thermal/cooling_device2/max_state": "2\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "passive\n",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "99000\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_type": "critical\n",
    "sys/class/thermal/thermal_zone0/trip_point_1_temp": "104500\n",
    "sys/class/thermal/thermal_zone0/trip_point_2_type": "passive\n",
    "sys/class/thermal/thermal_zone0/trip_point_2_temp": "70000\n",
    "sys/class/thermal/thermal_zone10/type": "cv0-thermal\n",
    "sys/class/thermal/thermal_zone10/trip_point_0_type": "critical\n",
    "sys/class/thermal/thermal_zone10/trip_point_0_temp": "-274000\n",
    "sys/class/devfreq/17000000.gpu/cur_freq": "305992999\n",
    "sys/class/devfreq/17000000.gpu/min_freq": "305992999\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "611997000\n",
    "sys/class/devfreq/15340000.vic/cur_freq": "729600000\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq": "729600\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1728000\n",
    **{f"{HOST1X}/{dla}/power/runtime_active_time": "0\n" for dla in DLAS},
    **{f"{HOST1X}/{dla}/power/runtime_status": "suspended\n" for dla in DLAS},
}
"""An AGX Orin 64 GB with R36.4.3; by path under the root."""


SENSORS: Mapping[str, Mapping[str, str]] = {
    # As published for an Orin Nano with R36.4: limits of 25 W at 5 V, 512 samples.
    "orin-nano": {
        "name": "ina3221\n",
        "samples": "512\n",
        "shunt1_resistor": "5000\n",
        "in1_label": "VDD_IN\n",
        "in1_input": "5016\n",
        "curr1_input": "1550\n",
        "curr1_max": "4984\n",
        "curr1_crit": "4984\n",
        "in2_label": "VDD_CPU_GPU_CV\n",
        "in2_input": "5008\n",
        "curr2_input": "440\n",
    },
    # The chip on the carrier of Thor, as Documentation/hwmon/ina238.rst describes it.
    "thor": {
        "name": "ina238\n",
        "in0_input": "3\n",
        "in1_input": "19980\n",
        "curr1_input": "2360\n",
        "power1_input": "47152800\n",
        "shunt_resistor": "2000\n",
    },
}
"""Files of sensors of rails, by board; under ``sys/class/hwmon/hwmon7``."""


def sensor(board: str) -> dict[str, str]:
    """Return the files of a board's sensor, by path under the root."""
    return {f"sys/class/hwmon/hwmon7/{name}": text for name, text in SENSORS[board].items()}


def write_board(root: Path, files: Mapping[str, str] = AGX_ORIN) -> Path:
    """Write files under a root, with the links by which the kernel lists its platform devices.

    Returns:
        The root.
    """
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    listed = root / "sys/bus/platform/devices"
    listed.mkdir(parents=True, exist_ok=True)
    for device in DLAS:
        if (root / HOST1X / device).is_dir() and not (listed / device).is_symlink():
            (listed / device).symlink_to(root / HOST1X / device)
    sensor = root / "sys/class/hwmon/hwmon1/device"
    if sensor.parent.is_dir() and not sensor.is_symlink():
        sensor.symlink_to("../../../devices/platform/bus@0/c240000.i2c/i2c-1/1-0040")
    return root


def set_powered(root: Path, core: int, milliseconds: int) -> None:
    """Set how long a DLA core was powered since the boot."""
    (root / HOST1X / DLAS[core] / "power/runtime_active_time").write_text(f"{milliseconds}\n")
