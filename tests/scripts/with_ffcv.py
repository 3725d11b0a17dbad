"""FFCV decodes in threads of its own; no DataLoader. The file is made of a folder of images at the first start."""

import argparse
import os
import time

import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import Squeeze, ToTensor
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder


def pipelines():
    return {
        "image": [RandomResizedCropRGBImageDecoder((64, 64)), ToTensor()],
        "label": [IntDecoder(), ToTensor(), Squeeze()],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not os.path.exists(args.file):
        fields = {"image": RGBImageField(write_mode="jpg", max_resolution=256), "label": IntField()}
        DatasetWriter(args.file, fields, num_workers=1).from_indexed_dataset(ImageFolder(args.data))
    train = Loader(
        args.file, batch_size=16, num_workers=args.workers, order=OrderOption.RANDOM, pipelines=pipelines(), seed=0
    )
    val = Loader(args.file, batch_size=16, num_workers=1, pipelines=pipelines(), drop_last=False)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        began, count = time.perf_counter(), 0
        for images, labels in train:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images.float().mean((1, 2))), labels).backward()
            optimizer.step()
            time.sleep(args.step_ms / 1000)
            count += len(images)
        print(f"epoch {epoch}: {count / (time.perf_counter() - began):.1f} images/s", flush=True)
        with torch.no_grad():
            right = sum(int((model(images.float().mean((1, 2))).argmax(1) == labels).sum()) for images, labels in val)
        print(f"right: {right}", flush=True)
        torch.save(model.state_dict(), "checkpoint.pth")


if __name__ == "__main__":
    main()
