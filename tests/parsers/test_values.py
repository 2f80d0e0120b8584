"""Shapes and units."""

from datetime import datetime

import pytest

from tegrascope.parsers.errors import UnreadableError
from tegrascope.parsers.records import Engine, Ram
from tegrascope.parsers.tegrastats import parse_line, values


@pytest.mark.parametrize("milliwatts", [0, 1, 5139, 4890, 29, 999_999_999])
def test_milliwatts_are_divided_once(milliwatts):
    """A power is the float nearest to what was printed, not a product of roundings."""
    assert values.read_power(f"{milliwatts}mW") == ((milliwatts / 1000,), "", True)


def test_every_percentage_is_the_nearest_float():
    """29 % is 0.29, as it would be written, for every percentage there is."""
    for percent in range(101):
        assert values.read_percent(f"{percent}%") == float(f"{percent / 100:.2f}")


def test_a_megabyte_is_1024_kilobytes():
    """Sizes are whole bytes, in the kernel's units."""
    assert values.read_size("3964MB") == (3964 * 2**20, 2**20)
    assert values.read_size("252kB") == (252 * 2**10, 2**10)


@pytest.mark.parametrize("note", ["4x4MB", "x4MB)", "1x4x4MB)", "4x4)", "4xMB)", ")", ""])
def test_damaged_note_of_memory_is_left_out(note):
    """The sizes before it stay."""
    sample = parse_line(f"RAM 1/2MB (lfb {note} tj@1C")
    assert sample.ram == Ram(2**20, 2**21)
    assert sample.unparsed == ("(lfb", *note.split())


@pytest.mark.parametrize(
    ("text", "celsius"),
    [("40C", 40.0), ("54.062C", 54.062), ("-7.5C", -7.5), ("-256C", None)],
)
def test_temperature_keeps_its_sign_and_minus_256_is_no_reading(text, celsius):
    """Below zero is cold; -256 is a zone without power."""
    assert values.read_celsius(text) == celsius


def test_temperature_of_r39_has_a_maximum():
    """The number behind the stroke is the highest, and the first is not cut by it."""
    sample = parse_line("RAM 1/2MB tj@56.937C/66.625C")
    assert sample.temperatures_celsius == {"tj": 56.937}
    assert sample.temperatures_max_celsius == {"tj": 66.625}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7%", (0.07, ())),
        ("@1600", (None, (1_600_000_000,))),
        ("@[1600]", (None, (1_600_000_000,))),
        ("79%@166", (0.79, (166_000_000,))),
        ("43%@[305,0]", (0.43, (305_000_000, 0))),
    ],
)
def test_load_and_clocks_in_every_shape(text, expected):
    """One reader takes each form that a processor was seen to print."""
    assert values.read_load(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", {"PVA0": Engine("off")}),
        ("OFF", {"PVA0": Engine("off")}),
        ("7%", {"PVA0": Engine(None, 0.07)}),
        ("@1600", {"PVA0": Engine("on", None, 1_600_000_000)}),
        ("@[1600]", {"PVA0": Engine("on", None, 1_600_000_000)}),
        ("79%@0", {"PVA0": Engine("off", 0.79, 0)}),
        ("115", {"PVA0": Engine("on", None, 115_000_000)}),
        (
            "[5%,6%]@7",
            {
                "PVA0": Engine("on", None, 7_000_000),
                "PVA0_VPU0": Engine(None, 0.05),
                "PVA0_VPU1": Engine(None, 0.06),
            },
        ),
    ],
)
def test_engine_in_every_shape(text, expected):
    """An engine may be off, have a bare clock, or have a load for each of its units."""
    assert parse_line(f"RAM 1/2MB PVA0 {text} tj@1C").engines == expected


ARABIC_FIVE = "\N{ARABIC-INDIC DIGIT FIVE}"


DAMAGED = (
    *("", "%", "@", "101%", "1000%", "-1%", "5%@", "5%@[]", "5%@[1,]", "[5%]", "[5%,6%]"),
    *("1.5%", "1" * 10, "1" * 5000, ARABIC_FIVE, f"{ARABIC_FIVE}%", "on"),
)


@pytest.mark.parametrize("text", [*DAMAGED, "5 %", "5%@1\n", "off", "115", "[5%,6%]@7"])
def test_everything_else_is_not_a_load(text):
    """Damage, other scripts' digits and numbers of absurd length are not read."""
    with pytest.raises(UnreadableError):
        values.read_load(text)


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_word_is_not_an_engine(text):
    """An engine reads nothing from it."""
    assert not parse_line(f"RAM 1/2MB PVA0 {text} tj@1C").engines


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[]", "]", "5%@729", "[5%@729", "[5%@729,]", "[5%@729,7]", "[5%@]"),
        *("[5%]729", "[5%]@", "[5%@1]@2", "[101%@5]", "[5%@729]]", f"[{ARABIC_FIVE}%@1]"),
    ],
)
def test_half_a_list_of_cores_is_none(text):
    """A core's number is its place, so a damaged list gives no core at all."""
    sample = parse_line(f"RAM 1/2MB CPU {text} tj@1C")
    assert sample.cpu == ()
    assert sample.unparsed == ("CPU", *text.split())


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (values.read_size, "6"),
        (values.read_size, "6GB"),
        (values.read_size, "MB"),
        (values.read_celsius, "C"),
        (values.read_celsius, "5"),
        (values.read_label, "a-b"),
        (values.read_celsius, "5C/"),
        (values.read_power, "5"),
        (values.read_power, "5/"),
        (values.read_power, "1/2/3/4"),
        (values.read_power, "1mW/2mW/3mW/4mW"),
        (values.read_power, "5/6mW"),
        (values.read_percent, "5"),
        (values.read_percent, "off"),
        (values.read_percent, "5%@6"),
        (values.read_megahertz, "5%"),
    ],
)
def test_other_readers_refuse_what_is_not_theirs(reader, text):
    """Each reader takes a whole word of its own shape or none."""
    with pytest.raises(UnreadableError):
        reader(text)


@pytest.mark.parametrize(
    ("text", "watts", "cut"),
    [
        ("5139mW", (5.139,), ""),
        ("5139mW/4890mW/6000mW", (5.139, 4.89, 6.0), ""),
        ("598mW/598", (0.598,), "/598"),
        ("598mW/", (0.598,), "/"),
        ("598mW/59m", (0.598,), "/59m"),
        ("598mW/590mW/6", (0.598, 0.59), "/6"),
        ("598mW/590/600mW", (0.598,), "/590/600mW"),
    ],
)
def test_power_is_certain_up_to_the_number_that_lost_its_unit(text, watts, cut):
    """Where a number of a rail lacks the unit that others have, it and the rest are left over."""
    assert values.read_power(text) == (watts, cut, True)


@pytest.mark.parametrize(
    ("date", "clock"),
    [
        ("13-01-2025", "00:00:00"),
        ("02-30-2025", "00:00:00"),
        ("01-01-0000", "00:00:00"),
        ("01-01-2025", "24:00:00"),
        ("01-01-2025", "23:59:60"),
        ("1-1-2025", "00:00:00"),
        ("01-01-2025", ""),
    ],
)
def test_no_such_time(date, clock):
    """A date that the calendar does not have is no date."""
    with pytest.raises(UnreadableError):
        values.read_time(date, clock)


def test_month_comes_first():
    """The order of the date is the American one on every release."""
    assert values.read_time("02-11-2025", "01:02:03") == datetime(2025, 2, 11, 1, 2, 3)
