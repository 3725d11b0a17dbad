"""The Trainer of Hugging Face Transformers, with gradient accumulation."""

import argparse
import time

import torch
from torchvision import datasets, transforms
from transformers import Trainer, TrainerCallback, TrainingArguments


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return {"images": image, "labels": index}


class Model(torch.nn.Module):
    def __init__(self, step_s):
        super().__init__()
        self.linear, self.step_s, self.seen = torch.nn.Linear(3, 10), step_s, []

    def forward(self, images, labels):
        if self.training:
            time.sleep(self.step_s)
            self.seen += labels.tolist()
        scores = self.linear(images.mean((2, 3)))
        return {"loss": torch.nn.functional.cross_entropy(scores, labels % 10), "logits": scores}


class Report(TrainerCallback):
    def __init__(self, model, seen):
        self.model, self.file = model, seen

    def on_epoch_begin(self, *args, **kwargs):
        self.began, self.model.seen = time.perf_counter(), []

    def on_epoch_end(self, args, state, *rest, **kwargs):
        rate = len(self.model.seen) / (time.perf_counter() - self.began)
        print(f"epoch {round(state.epoch) - 1}: {rate:.1f} images/s", flush=True)
        if self.file:
            with open(self.file, "a") as file:
                file.write(" ".join(map(str, self.model.seen)) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--output-dir", default="trainer-out")
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    model = Model(args.step_ms / 1000)
    trainer = Trainer(
        model=model,
        train_dataset=dataset,
        callbacks=[Report(model, args.seen)],
        args=TrainingArguments(
            output_dir=args.output_dir,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=16,
            dataloader_num_workers=args.workers,
            gradient_accumulation_steps=2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main()
