r"""Train on handwritten digits with Horovod's elastic API while ranks die and come.

    ringdistrun -np 3 --min-np 2 python examples/horovod_elastic_digits.py
    ringdistrun -np 3 --min-np 2 --host-discovery-script ./hosts.sh \
        python examples/horovod_elastic_digits.py

Kill any of the ranks while it trains, with kill -9 PID; the launcher prints the pids. The others
continue at once, and another process takes its place. A script for Horovod changes one line,
`import horovod.torch as hvd`. Model and data are those of horovod_digits.py. --log FOLDER writes
what each rank has done in each step. It needs: pip install scikit-learn tqdm
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from ddp_digits import Cnn, load_data, shifted
from elastic_digits import Log, parameter_hash
from horovod_digits import accuracy, learning_rate, say
from torch import nn
from torch.utils.data import DataLoader

import torch_ringdist.horovod as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    add("--batch-size", type=int, default=32, help="images per rank and step (default: 32)")
    add("--lr", type=float, default=7e-3, help="peak learning rate of Adam (default: 0.007)")
    add("--seed", type=int, default=0, help="of the initial parameters and the order of images")
    add("--pause", type=float, default=0.0, metavar="S", help="seconds that each step takes longer")
    add("--codec", help="of gradients, as int4 (docs/reference/codecs.md); default: none")
    add("--log", type=Path, metavar="FOLDER", help="write there what each step has done")
    return parser.parse_args()


class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.log = args, Log(args.log)
        self.train_data, self.test_data = load_data()
        self.model = Cnn()
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(self.model.parameters(), lr=args.lr),
            named_parameters=self.model.named_parameters(),
            compression=args.codec or hvd.Compression.none,
        )
        self.sampler = hvd.elastic.ElasticSampler(self.train_data, seed=args.seed)
        # Parameters are not broadcast here, because all ranks get rank 0's with the state.
        self.state = hvd.elastic.TorchState(
            self.model, self.optimizer, sampler=self.sampler, epoch=0, step=0, resets=0
        )
        self.state.register_reset_callbacks([self.on_reset])

    def on_reset(self) -> None:
        self.state.resets += 1
        say(f"of size {hvd.size()} after step {self.state.step}")

    def train(self, state: hvd.elastic.TorchState) -> float:
        """Called again whenever ranks were lost or have come; returns the accuracy."""
        for epoch in range(state.epoch, self.args.epochs):
            state.epoch = epoch
            images = shifted(self.train_data, self.args.seed + epoch)
            loader = DataLoader(images, self.args.batch_size, sampler=self.sampler)
            for batch, (x, y) in enumerate(loader):
                self.step(batch, x, y)
                state.commit()
            self.sampler.set_epoch(epoch + 1)
        return accuracy(self.model, self.test_data)

    def step(self, batch: int, x: torch.Tensor, y: torch.Tensor) -> None:
        state, size = self.state, self.args.batch_size
        where = {
            "step": state.step + 1,
            "epoch": state.epoch,
            "generation": state.resets,
            "rank": hvd.rank(),
            "size": hvd.size(),
        }
        self.log.write(what="began", indices=self.sampler.get_indices(batch, size), **where)
        done = self.sampler.processed_num / len(self.train_data)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.args, state.epoch + done)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        time.sleep(self.args.pause)
        self.sampler.record_batch(batch, size)
        state.step += 1
        # Logged before the commit, because commit() does not return in a process that leaves.
        self.log.write(what="committed", loss=mean, parameters=parameter_hash(self.model), **where)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    trainer = Trainer(args)
    right = hvd.elastic.run(trainer.train)(trainer.state)
    say(f"accuracy {right:.4f} after step {trainer.state.step}, of size {hvd.size()}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
