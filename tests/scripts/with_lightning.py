"""A Lightning module and its Trainer."""

import argparse
import time

import lightning
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


class Module(lightning.LightningModule):
    def __init__(self, step_s, seen):
        super().__init__()
        self.model, self.step_s, self.seen_file = torch.nn.Linear(3, 10), step_s, seen
        self.seen = []

    def on_train_epoch_start(self):
        self.began, self.count, self.seen = time.perf_counter(), 0, []

    def training_step(self, batch, _):
        images, numbers = batch
        time.sleep(self.step_s)
        self.count += len(images)
        self.seen += numbers.tolist()
        return torch.nn.functional.cross_entropy(self.model(images.mean((2, 3))), numbers % 10)

    def validation_step(self, batch, _):
        self.model(batch[0].mean((2, 3)))

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: {self.count / (time.perf_counter() - self.began):.1f} images/s", flush=True)
        if self.seen_file:
            with open(self.seen_file, "a") as file:
                file.write(" ".join(map(str, self.seen)) + "\n")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    train = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=args.workers)
    val = DataLoader(torch.utils.data.Subset(dataset, range(32)), batch_size=16, num_workers=args.workers)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=True,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir="lightning-out",
    )
    trainer.fit(Module(args.step_ms / 1000, args.seen), train, val)


if __name__ == "__main__":
    main()
