"""Dirichlet partitions: skewed class proportions, the more so the smaller alpha.

"per_class": H. Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML 2019, with the
balancing rule of Q. Li et al., "Federated learning on non-IID data silos", ICDE 2022, which FedMRN's official code
copies (alpha 0.3; CIFAR-100: 0.2). "hsu": T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data
distribution for federated visual classification", 2019. "per_client" is "hsu" with alpha times
the number of classes: with 10 of them its alpha = 0.1 is hsu's 1.0. Papers often write "Dirichlet" only: name which.
Shape legend: n samples, N clients, C classes.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcomp.core.ranges import Whole, Within
from fedcomp.partition.contract import Partition, required_clients, required_labels
from fedcomp.random.keys import Key


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Class proportions from a Dirichlet distribution; every sample is dealt.

    Attributes:
        variant: "per_class": of each class, client i gets the share p_i, p ~ Dir(alpha 1_N); sizes differ.
            "per_client": client i draws samples by class with its own q_i ~ Dir(alpha C r), r the classes' shares of
            the data, until it holds n / N (sizes differ by one at most). Samples are not replaced: where a class runs
            out, its share of q_i goes to the classes left, in proportion to q_i, or, if it wants none of those, to the
            samples left, as they come. Clients are served in random order; the last take what is left. So what clients
            hold differs from their q_i: with alpha 0.1 and 10 classes of 1,000 samples the label entropy of a client is
            1.14 nats in the mean over 5 clients and 0.77 over 100, and that of the q_i is psi(2) - psi(1.1) = 0.847. A
            run says what it got in run.log and under partition.png. "hsu": the same with q_i ~ Dir(alpha r), the
            paper's own alpha.
        balance: for per_class: a client that holds n / N samples or more gets none of the classes still to be dealt.
        seed: FedMRN fixes one partition for all its runs.
    """

    alpha: Annotated[float, Within("(0, inf)")] = 0.3
    variant: Literal["per_class", "per_client", "hsu"] = "per_class"
    balance: bool = True
    min_size: Annotated[int, Whole()] = 10
    max_tries: Annotated[int, Whole()] = 1000

    def split(
        self, labels: Tensor | None, num_samples: int, num_clients: int | None, key: Key, owners: Tensor | None = None
    ) -> list[Tensor]:
        """As `Partition.split`. Raises ValueError: min_size is out of reach, for sure or in `max_tries` draws."""
        labels = required_labels(labels, "dirichlet")
        num_clients = required_clients(num_samples, num_clients)
        if num_clients * self.min_size > num_samples:
            raise ValueError(
                f"partition.min_size is {self.min_size}, but {num_samples} samples over {num_clients} clients make "
                f"{num_samples // num_clients} each; lower partition.min_size or num_clients"
            )
        random = np.random.default_rng(key.fold_in("proportions").seed)
        class_sizes = labels.unique(return_counts=True)[1].numpy()
        draw = self._per_class if self.variant == "per_class" else self._per_client
        smallest = 0
        for _ in range(self.max_tries):
            counts_NC = draw(class_sizes, num_clients, random)
            smallest = max(smallest, int(counts_NC.sum(1).min()))
            if smallest >= self.min_size:
                return _deal(labels, counts_NC, key.fold_in("samples"))
        raise ValueError(
            f"partition=dirichlet: in {self.max_tries} draws with alpha={self.alpha}, {num_clients} clients and "
            f"{num_samples} samples, the smallest client held at most {smallest} samples, below "
            f"partition.min_size={self.min_size}; raise partition.alpha, or lower partition.min_size or num_clients"
        )

    def _per_class(self, class_sizes: np.ndarray, num_clients: int, random: np.random.Generator) -> np.ndarray:
        """[N, C] samples; or zeros where all shares of a class fell on full clients, which is drawn again."""
        sizes = np.zeros(num_clients, np.int64)
        counts_NC = np.zeros((num_clients, len(class_sizes)), np.int64)
        for column, class_size in enumerate(class_sizes):
            share = random.dirichlet(np.full(num_clients, self.alpha))
            if self.balance:
                share = share * (sizes * num_clients < class_sizes.sum())
            upto = np.cumsum(share)
            if not upto[-1] > 0:
                return np.zeros_like(counts_NC)
            cuts = np.floor(upto[:-1] / upto[-1] * class_size).astype(np.int64)
            counts_NC[:, column] = np.diff(cuts, prepend=0, append=class_size)
            sizes += counts_NC[:, column]
        return counts_NC

    def _per_client(self, class_sizes: np.ndarray, num_clients: int, random: np.random.Generator) -> np.ndarray:
        """[N, C] samples."""
        num_samples, num_classes = int(class_sizes.sum()), len(class_sizes)
        per_class = num_classes if self.variant == "per_client" else 1
        concentration = self.alpha * per_class * class_sizes / num_samples
        left = class_sizes.copy()
        counts_NC = np.zeros((num_clients, num_classes), np.int64)
        for turn, client in enumerate(random.permutation(num_clients)):
            wanted = (turn + 1) * num_samples // num_clients - turn * num_samples // num_clients
            share = random.dirichlet(concentration)
            while wanted > 0:
                open_share = share * (left > 0)
                if not open_share.sum() > 0:
                    open_share = left.astype(np.float64)  # none of the client's classes is left: draw from the others
                drawn = np.minimum(random.multinomial(wanted, open_share / open_share.sum()), left)
                counts_NC[client] += drawn
                left -= drawn
                wanted -= int(drawn.sum())
        return counts_NC


def _deal(labels: Tensor, counts_NC: np.ndarray, key: Key) -> list[Tensor]:
    """Shuffle each class and hand out runs of the given lengths."""
    generator = key.generator()
    runs_CN = []
    for label, counts in zip(labels.unique(), counts_NC.T):
        samples = torch.nonzero(labels == label)[:, 0]
        samples = samples[torch.randperm(len(samples), generator=generator)]
        runs_CN.append(samples.split(counts.tolist()))
    return [torch.cat(runs) for runs in zip(*runs_CN)]
