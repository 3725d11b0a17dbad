from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.machine.pressure import RESOURCES, Pressure, PressureReader, parse_pressure_some


def _write(folder: Path, **totals_us: int) -> list[str]:
    for name, total_us in totals_us.items():
        (folder / name).write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull total=1\n")
    return [str(folder / name) for name in RESOURCES]


def test_pressure_takes_the_total_of_some() -> None:
    text = b"some avg10=0.53 avg60=0.44 avg300=0.14 total=3975402\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"

    assert parse_pressure_some(text) == 3975402


@pytest.mark.parametrize("text", [b"", b"full avg10=0.00 total=5\n", b"some avg10=0.53\n", b"some total=x\n"])
def test_pressure_in_another_form_is_not_known(text: bytes) -> None:
    assert parse_pressure_some(text) is None


def test_pressure_is_a_share_of_the_time_between_two_readings(tmp_path: Path) -> None:
    reader = PressureReader(_write(tmp_path, cpu=0, io=100, memory=1000))
    assert reader.read(0) == Pressure()
    _write(tmp_path, cpu=50_000, io=100, memory=900)  # µs; a counter that went back counts as unchanged

    assert reader.read(10**8) == Pressure(50.0, 0.0, 0.0)
    assert reader.complete
    reader.close()
    reader.close()


def test_more_than_all_of_the_time_is_all_of_it(tmp_path: Path) -> None:
    reader = PressureReader(_write(tmp_path, cpu=0, io=0, memory=0))
    reader.read(0)
    _write(tmp_path, cpu=10**9, io=0, memory=0)

    assert reader.read(10**8).psi_cpu_some_pct == 100.0


def test_no_time_between_two_readings_is_no_share(tmp_path: Path) -> None:
    reader = PressureReader(_write(tmp_path, cpu=0, io=0, memory=0))
    reader.read(10)

    assert reader.read(10) == Pressure()


def test_a_file_that_is_absent_is_none_and_the_others_are_read(tmp_path: Path) -> None:
    reader = PressureReader(_write(tmp_path, cpu=0, memory=0))
    reader.read(0)

    assert reader.read(10**8) == Pressure(0.0, None, 0.0)
    assert not reader.complete


def test_a_file_that_may_be_opened_but_not_read_is_none(tmp_path: Path) -> None:
    # Reading a folder is refused as reading a pressure file is where pressure is switched off: OSError.
    (tmp_path / "cpu").mkdir()
    reader = PressureReader(_write(tmp_path, io=0, memory=0))
    reader.read(0)

    assert reader.read(10**8) == Pressure(None, 0.0, 0.0)
    assert not reader.complete


def test_without_files_nothing_is_read() -> None:
    reader = PressureReader([])
    reader.read(0)

    assert reader.read(10**8) == Pressure()
    assert not reader.complete
