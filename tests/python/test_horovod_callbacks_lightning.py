"""Callbacks under Lightning, with its own Trainer where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.horovod import initialized
from support.rank import same_bits
from test_horovod_callbacks import STEPS, _data, _loss, _net
from torch.utils.data import DataLoader

import torch_ringdist.horovod as hvd
from torch_ringdist.horovod.callbacks import (
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    Callback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    lightning,
)


def _of_lightning(folder: str) -> list[Callback]:
    return [
        BroadcastGlobalVariablesCallback(0),
        LearningRateWarmupCallback(0.4, warmup_epochs=2),
        MetricAverageCallback(),
        BestModelCheckpoint(filepath=Path(folder, "best.pt")),
    ]


# Has the part of lightning.pytorch that the adapter uses.
FAKE = ModuleType("lightning.pytorch")
FAKE.Callback = type("Callback", (), {})  # type: ignore[attr-defined]


def _under_fake_lightning(folder: str) -> None:
    """Calls the adapter like Lightning's Trainer."""
    sys.modules["lightning.pytorch"] = FAKE
    try:
        ours = lightning(_of_lightning(folder))
        assert isinstance(ours, FAKE.Callback) and "MetricAverage" in ours.state_key
    finally:
        del sys.modules["lightning.pytorch"]
    with initialized():
        rank = hvd.rank()
        module = _net(rank)
        logged: dict[str, float] = {}
        module.log_dict = logged.update
        optimizers = [torch.optim.SGD(module.parameters(), lr=1.0)]
        trainer = SimpleNamespace(
            optimizers=optimizers, num_training_batches=STEPS, current_epoch=0
        )
        ours.on_fit_start(trainer, module)
        ours.on_train_start(trainer, module)
        rates = []
        for trainer.current_epoch in range(3):
            ours.on_train_epoch_start(trainer, module)
            for i in range(STEPS):
                ours.on_train_batch_start(trainer, module, None, i)
                rates.append(optimizers[0].param_groups[0]["lr"])
                ours.on_train_batch_end(trainer, module, None, None, i)
            trainer.callback_metrics = {"val_loss": torch.tensor(3.0 + rank), "one": 1.0}
            ours.on_train_epoch_end(trainer, module)
            assert logged == {"val_loss": 3.5, "lr": pytest.approx(rates[-1])}
        ours.on_train_end(trainer, module)
        assert rates[:8] == pytest.approx([0.4 * (0.5 + (i + 1) / 16) for i in range(8)])
        assert rates[8:] == [0.4] * 4
        same_bits(module.weight.detach(), _net(0).weight.detach(), "weight")
        assert torch.load(Path(folder, "best.pt"))["best"] == 3.5
        assert ours.state_dict()["epoch"] == 3
        ours.load_state_dict(ours.state_dict())


def test_as_lightning_calls_it(pools, tmp_path: Path):
    pools(2).run(_under_fake_lightning, str(tmp_path))


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install lightning"):
        lightning(MetricAverageCallback())


def _under_lightning(folder: str) -> None:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _net(hvd.rank())
            self.rates: list[float] = []

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
            return _loss(self.net, batch)

        def validation_step(self, batch: torch.Tensor, number: int) -> None:
            self.log("val_loss", float(hvd.rank()))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
            optimizer = hvd.DistributedOptimizer(optimizer, self.named_parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def train(epochs: int, checkpoint: str | None = None) -> tuple[Module, Any]:
        keep = pl.callbacks.ModelCheckpoint(
            Path(folder, str(hvd.rank())), monitor="val_loss", save_on_train_epoch_end=True
        )
        trainer = pl.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            callbacks=[lightning(_of_lightning(folder)), keep],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        module = Module()
        batches = DataLoader(_data(), batch_size=None)
        trainer.fit(module, batches, batches, ckpt_path=checkpoint)
        assert trainer.callback_metrics["val_loss"] == 0.5  # the average of 0 and 1
        return module, keep

    with initialized():
        whole, _ = train(3)
        expected = [0.4 * 0.5**i * min(1.0, 0.5 + (i + 1) / 16) for i in range(12)]
        assert whole.rates == pytest.approx(expected)
        _, keep = train(1)
        assert keep.best_model_score == 0.5
        resumed, _ = train(3, keep.best_model_path)
        assert resumed.rates == pytest.approx(expected[STEPS:])
        for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
            same_bits(one.detach(), other.detach(), "after a resume")
            same_bits(one.detach(), hvd.broadcast(one.detach(), 0), "rank 0's")


@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None,
    reason="the package lightning is not installed",
)
def test_under_lightning(fresh_pool: Callable, tmp_path: Path):
    fresh_pool(2).run(_under_lightning, str(tmp_path), timeout=100)
