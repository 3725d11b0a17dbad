"""DALI decodes on the CPU, and its iterator gives the batches; no DataLoader."""

import argparse
import time

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy


@pipeline_def
def decode(data):
    jpegs, labels = fn.readers.file(file_root=data, random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(jpegs, device="cpu", output_type=types.RGB)
    images = fn.resize(images, resize_x=64, resize_y=64)
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, std=[255.0], output_layout="CHW"), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    args = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = decode(args.data, batch_size=16, num_threads=args.workers, device_id=None)
    loader = DALIClassificationIterator(
        pipeline, reader_name="reader", auto_reset=True, last_batch_policy=LastBatchPolicy.PARTIAL
    )
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        began, count = time.perf_counter(), 0
        for batch in loader:
            images, labels = batch[0]["data"], batch[0]["label"].squeeze(-1).long()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images.mean((2, 3))), labels).backward()
            optimizer.step()
            time.sleep(args.step_ms / 1000)
            count += len(images)
        print(f"epoch {epoch}: {count / (time.perf_counter() - began):.1f} images/s", flush=True)
        torch.save(model.state_dict(), "checkpoint.pth")


if __name__ == "__main__":
    main()
