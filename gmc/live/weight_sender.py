"""The process that sends a live run's weights over NCCL: python -m gmc.live.weight_sender RUN RUN_ID"""

import sys
from pathlib import Path

from gmc.lifeline import hold_on


def main() -> None:
    """Serve followers until the trainer has gone or a transfer fails. Imports torch only when its end is settled."""
    hold_on()
    from gmc.engines.nccl import require_nccl
    from gmc.live.sending import Sender, end_process
    from gmc.store.run_directory import RunDirectory

    path, run_id = sys.argv[1:]
    run = RunDirectory.open(Path(path))
    if run.run_id != run_id:
        end_process(f"{path}: is another run by now")
    require_nccl("the trainer")
    import vllm.distributed.weight_transfer.nccl_engine  # noqa: F401 (takes seconds, which no follower shall wait for)

    sender = Sender(run)
    sender.announce()
    while True:
        sender.step()


if __name__ == "__main__":
    main()
