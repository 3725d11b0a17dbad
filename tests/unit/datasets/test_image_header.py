from __future__ import annotations

import io
import os
import random
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from pipetune.datasets.image_header import MAX_READ_BYTES, Header, NotAnImage, parse_header, read_header
from tests.unit.datasets.images import encode, exif, segment, with_segments


def both(data: bytes, folder: Path) -> Header:
    """What the two entrances say, which has to be the same."""
    file = folder / "image"
    file.write_bytes(data)
    from_memory, from_file = parse_header(data), read_header(str(file))
    assert from_memory == from_file
    return from_memory


def reason(data: bytes, folder: Path) -> str:
    file = folder / "image"
    file.write_bytes(data)
    with pytest.raises(NotAnImage) as from_memory:
        parse_header(data)
    with pytest.raises(NotAnImage) as from_file:
        read_header(str(file))
    assert from_memory.value.reason == from_file.value.reason
    return from_memory.value.reason


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_kinds(mode: str, progressive: bool, tmp_path: Path) -> None:
    header = both(encode(mode=mode, progressive=progressive), tmp_path)
    assert header == Header(format="jpeg", width=40, height=30, progressive=progressive)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_jpeg_of_any_chroma_subsampling(subsampling: str, tmp_path: Path) -> None:
    assert both(encode(subsampling=subsampling), tmp_path) == Header(
        format="jpeg", width=40, height=30, progressive=False
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpeg_orientation(order: str, orientation: int, tmp_path: Path) -> None:
    data = with_segments(encode(), segment(0xE1, b"Exif\0\0" + exif(orientation, order, before=5)))
    header = both(data, tmp_path)
    assert (header.orientation, header.width, header.height) == (orientation, 40, 30)


@pytest.mark.parametrize(
    "broken",
    [
        exif(0),
        exif(9),
        b"XX*\0" + exif(6)[4:],
        exif(6)[:4] + struct.pack("<I", 0xFFFFFFF0) + exif(6)[8:],
        exif(6)[:8] + b"\xff\xff",
        exif(6)[:-12],
        struct.pack(">4sIHHHII", b"MM\0*", 8, 1, 0x0112, 4, 1, 6),
    ],
    ids=["zero", "nine", "no byte order", "directory far away", "too many tags", "cut off", "big-endian long"],
)
def test_broken_exif_is_no_orientation(broken: bytes, tmp_path: Path) -> None:
    header = both(with_segments(encode(), segment(0xE1, b"Exif\0\0" + broken)), tmp_path)
    assert (header.orientation, header.width) == (1, 40)


def test_exif_behind_another_app1(tmp_path: Path) -> None:
    data = with_segments(
        encode(),
        segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + bytes(3000)),
        segment(0xE1, b"Exif\0\0" + exif(6, ">")),
    )
    assert both(data, tmp_path).orientation == 6


def test_size_behind_large_segments_is_found_by_seeking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = with_segments(encode(), *[segment(0xE2, bytes(65000))] * 40)
    reads: list[int] = []
    real = os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        reads.append(count)
        return real(fd, count, offset)

    monkeypatch.setattr("os.pread", counted)
    assert both(data, tmp_path).width == 40
    assert 40 <= len(reads) <= 42
    assert sum(reads) < MAX_READ_BYTES


def test_too_many_segments_give_up(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(with_segments(encode(), *[segment(0xE2, bytes(5000))] * 400))
    with pytest.raises(NotAnImage, match="1 MiB of header"):
        read_header(str(file))
    assert "first 4096 markers" in reason(with_segments(encode(), *[segment(0xFE, b"")] * 5000), tmp_path)


def test_fill_bytes_and_markers_without_length(tmp_path: Path) -> None:
    assert both(with_segments(encode(), b"\xff\xff\xff\xd0\xff\x01"), tmp_path).width == 40


def test_endless_fill_bytes_give_up(tmp_path: Path) -> None:
    assert "first 4096 markers" in reason(b"\xff\xd8" + b"\xff" * 20_000, tmp_path)


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGB", "RGBA", "I;16"])
def test_png_kinds(mode: str, tmp_path: Path) -> None:
    header = both(encode("PNG", mode=mode), tmp_path)
    assert header == Header(
        format="png", width=40, height=30, progressive=False, bits={"I;16": 16, "1": 1}.get(mode, header.bits)
    )
    assert header.is_odd == (mode == "I;16")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def ihdr(width: int = 40, height: int = 30, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
    body = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", body)


def test_png_orientation_and_interlace(tmp_path: Path) -> None:
    data = ihdr(interlace=1) + chunk(b"iCCP", bytes(9000)) + chunk(b"eXIf", exif(8, ">")) + chunk(b"IDAT", b"")
    header = both(data, tmp_path)
    assert (header.orientation, header.progressive) == (8, True)
    assert both(ihdr() + chunk(b"IDAT", b"") + chunk(b"eXIf", exif(8)), tmp_path).orientation == 1


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webp_kinds(lossless: bool, mode: str, tmp_path: Path) -> None:
    from PIL import Image

    picture = Image.radial_gradient("L").resize((41, 29)).convert(mode)
    if mode == "RGBA":
        picture.putalpha(Image.linear_gradient("L").resize((41, 29)))
    picture.save(tmp_path / "a.webp", lossless=lossless)
    data = (tmp_path / "a.webp").read_bytes()
    header = both(data, tmp_path)
    assert (header.format, header.width, header.height) == ("webp", 41, 29)


@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0"])
def test_webp_orientation(prefix: bytes, tmp_path: Path) -> None:
    data = encode("WEBP", exif=prefix + exif(5))
    assert data[12:16] == b"VP8X"
    header = both(data, tmp_path)
    assert (header.orientation, header.width, header.height) == (5, 40, 30)


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(encode("PNG"))
    assert read_header(str(tmp_path / "a.jpg")).format == "png"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty file"),
        (b"once upon a time", "begins with b'once upo'"),
        (b"GIF89a" + bytes(40), "a GIF"),
        (b"\0\0\0\x1cftypavif", "AVIF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\xff\xd8", "cut off after 2 bytes"),
        (encode()[:100], "cut off after 100 bytes"),
        (encode("PNG")[:20], "cut off after 20 bytes"),
        (b"RIFF\0\0\0\0WEBP", "cut off"),
        (b"\xff\xd8\xff\xd9" + bytes(20), "marker FFD9"),
        (b"\xff\xd8\xff\xe0\0\1" + bytes(20), "marker FFE0"),
        (b"\xff\xd8\x00\x00" + bytes(20), "no marker at byte 2"),
        (b"\xff\xd8" + segment(0xC3, bytes(15)), "SOF3"),
        (b"\xff\xd8" + segment(0xC0, bytes(2)), "too short"),
        (b"\xff\xd8\xff\xc0\0\1" + bytes(30), "too short"),
        (b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 12, 9, 9, 1) + bytes(3)), "12 bits"),
        (b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 9, 9, 2) + bytes(6)), "2 components"),
        (b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 9, 9, 3) + bytes(6)), "3 components"),
        (b"\xff\xd8" + segment(0xC0, struct.pack(">BHHB", 8, 0, 9, 1) + bytes(3)), "no pixels (9 x 0)"),
        (ihdr(width=0), "no pixels (0 x 30)"),
        (ihdr(width=2**31 - 1, height=2**31 - 1), "more than decoders accept"),
        (ihdr(depth=3), "colour type 2 with 3 bits"),
        (ihdr(colour=5), "colour type 5"),
        (ihdr()[:-1] + b"\0", "no valid IHDR"),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(20), "no key frame"),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(20), "no lossless signature"),
        (b"RIFF\0\0\0\0WEBPJUNK" + bytes(20), "first chunk is b'JUNK'"),
    ],
)
def test_other_files_are_refused_with_the_reason(data: bytes, words: str, tmp_path: Path) -> None:
    assert words in reason(data, tmp_path)


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(NotAnImage, match="empty"):
        read_header(str(tmp_path / "a.jpg"))


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_header(str(tmp_path / "a.jpg"))


def samples() -> list[bytes]:
    return [
        with_segments(encode(), segment(0xE1, b"Exif\0\0" + exif(6, before=3))),
        encode(progressive=True),
        ihdr() + chunk(b"eXIf", exif(3)) + chunk(b"IDAT", bytes(9)),
        encode("WEBP"),
        encode("WEBP", lossless=True),
        encode("WEBP", exif=exif(5)),
    ]


def parsed(data: bytes) -> Header | str:
    try:
        return parse_header(data)
    except NotAnImage as error:
        return error.reason


def read(path: Path) -> Header | str:
    try:
        return read_header(str(path))
    except NotAnImage as error:
        return error.reason


@pytest.mark.parametrize("which", range(6))
def test_mutations_raise_nothing_else(which: int, tmp_path: Path) -> None:
    rng = random.Random(which)
    original = samples()[which]
    file = tmp_path / "image"
    headers = 0
    for turn in range(1500):
        data = bytearray(original[: rng.randrange(len(original))] if turn % 3 == 0 else original)
        for _ in range(rng.choice((0, 1, 2, 8))):
            place = rng.randrange(min(len(data), 120)) if data else 0
            data[place : place + 1] = rng.choice((b"", b"\xff", b"\0", rng.randbytes(1), rng.randbytes(4)))
        found = parsed(bytes(data))
        if isinstance(found, Header):
            headers += 1
            assert found.width > 0
            assert found.height > 0
            assert 1 <= found.orientation <= 8
        else:
            assert found
            assert "\n" not in found
        if turn % 10 == 0:
            file.write_bytes(data)
            assert read(file) == found
    assert 100 < headers < 1400


@pytest.mark.parametrize("start", [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8X"])
def test_random_bytes_raise_nothing_else(start: bytes) -> None:
    rng = random.Random(4)
    for _ in range(3000):
        found = parsed(start + rng.randbytes(rng.randrange(300)))
        assert found.width * found.height > 0 if isinstance(found, Header) else found


def test_an_animated_png_is_its_still_image_where_that_is_a_frame_and_is_refused_otherwise() -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "green", "blue")]
    animated, apart = (io.BytesIO(), io.BytesIO())
    frames[0].save(animated, "PNG", save_all=True, append_images=frames[1:])
    frames[0].save(apart, "PNG", save_all=True, append_images=frames[1:], default_image=True)
    assert parse_header(animated.getvalue()).width == 8
    with pytest.raises(NotAnImage, match="whose still image is none of its frames"):
        parse_header(apart.getvalue())
