"""How training is spread over machines: each runs one torchrun, and all meet at the first one.

``BREPFIND_NODES=2 BREPFIND_RENDEZVOUS=HOST:PORT`` make the train stage the first of two machines;
``brepfind join HOST:PORT --nodes 2 --node 1`` is the second. They are no parameters because the
place of a rank cannot change what it computes: a run that was begun on two machines goes on on
one, with the same bits if its ranks have as many threads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from brepfind.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The machines of one training.

    Attributes:
        count: how many there are.
        host: an address of the first, node 0, as the others see it; empty where it is the only one.
        port: where it listens.
    """

    count: int = 1
    host: str = ""
    port: int = 0

    @classmethod
    def at(cls, rendezvous: str, count: int) -> Nodes:
        """``count`` machines that meet at ``HOST:PORT``.

        Raises:
            UserError: if that is no address.
        """
        host, _, port = rendezvous.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise UserError(
                f"{rendezvous!r} is no place to meet: give HOST:PORT, an address of node 0 that "
                "the other machines reach and a free port there, such as 10.0.0.1:29500"
            )
        return cls(count=count, host=host.strip("[]"), port=int(port))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Nodes:
        """What BREPFIND_NODES and BREPFIND_RENDEZVOUS say; without them, this machine alone.

        Raises:
            UserError: naming the variable that cannot be used.
        """
        said = environment.get("BREPFIND_NODES") or "1"
        if not said.isdecimal() or int(said) < 1:
            raise UserError(f"BREPFIND_NODES is {said!r}: give the number of machines")
        if int(said) == 1:
            return cls()
        try:
            return cls.at(environment.get("BREPFIND_RENDEZVOUS", ""), int(said))
        except UserError as error:
            raise UserError(f"BREPFIND_RENDEZVOUS: {error}") from None

    def processes_each(self, processes: int) -> int:
        """How many of all ``processes`` run on each machine.

        Raises:
            UserError: if they cannot be shared evenly.
        """
        if processes % self.count:
            raise UserError(
                f"train.processes is {processes}, the ranks of all machines together, and cannot "
                f"be shared evenly by {self.count} of them"
            )
        return processes // self.count

    def torchrun(self, processes: int, node: int = 0) -> list[str]:
        """The arguments of torchrun on one of the machines, up to the program it starts."""
        each = f"--nproc-per-node={self.processes_each(processes)}"
        if self.count == 1:
            return ["--standalone", each]
        # The static rendezvous: node n has the n-th ranks, in every attempt, and rank 0 is where
        # the stage is that passes its events on.
        return [
            f"--nnodes={self.count}",
            f"--node-rank={node}",
            f"--master-addr={self.host}",
            f"--master-port={self.port}",
            each,
        ]
