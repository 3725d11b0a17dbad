"""JAX without torch: a small model trained on a loader that a sweep has found. One process, or a rank of several."""

import argparse
import json
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import pipetune
from pipetune.records.sweep import Candidate


def loss_of(weights, images, labels):
    features = images.mean((1, 2))
    scores = features @ weights["scale"] + weights["shift"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--join", help="address of the coordinator, number of this process, number of all")
    args = parser.parse_args()
    if args.join:
        address, number, count = args.join.split(",")
        jax.distributed.initialize(address, int(count), int(number))
    chosen = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, transfer="uint8")
    with pipetune.open_loader(chosen, args.data, image_size=32, arrays="numpy") as loader:
        weights = {"scale": jnp.zeros((3, len(loader.classes))), "shift": jnp.zeros(len(loader.classes))}

        @jax.jit
        def step(weights, images, labels):
            loss, slopes = jax.value_and_grad(loss_of)(weights, loader.normalise(images), labels)
            return loss, jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)

        losses, seen, kept = [], [], []
        for _ in range(args.epochs):
            total = 0.0
            for images, labels in loader:
                loss, weights = step(weights, images, labels)
                total += float(loss)
                seen.append(labels.tolist())
                kept.append((jnp.asarray(images), int(images.sum())))
            losses.append(total / len(loader))
        # What JAX holds is what it was given, though its memory is used again for other batches.
        same = all(int(array.astype(jnp.int32).sum()) == total for array, total in kept)
    print(json.dumps({"losses": losses, "seen": seen, "same": same, "torch": "torch" in sys.modules}))


if __name__ == "__main__":
    main()
