"""What a sleeping thread waits for, by the name of the kernel function in which it sleeps. Pure.

``/proc/PID/wchan`` names that function to any process of the same user (proc_pid_wchan(5)). Names change between kernel
versions, so each class lists the families of names of many versions, and an unknown name is ``other``. The state letter
decides only where there is no name: D is uninterruptible, nearly always a disk.

Why by hand: psutil does not read ``wchan``, and no library classifies its names.
"""

from __future__ import annotations

from functools import lru_cache

from pipetune.records.observation import DISK, LOCK, NETWORK, OTHER, PIPE, RUNNING, SLEEP

#: Beginnings of function names. Network comes first: network file systems also wait in ``folio_wait_bit``, but have
#: functions of their own as well.
_FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        NETWORK,
        (
            "wait_woken",  # TCP and UDP receive since 3.19
            "sk_wait_data", "sk_stream_wait", "tcp_recvmsg", "inet_csk_", "__skb_wait_for_more", "udp_recvmsg",
            "nfs_", "nfs4_", "rpc_wait", "__rpc_wait", "request_wait_answer", "fuse_",  # NFS and FUSE
            "p9_", "cifs_", "smb2_", "wait_for_response", "ceph_", "rbd_", "cl_sync_io", "ll_", "osc_", "gpfs", "cxi",
        ),
    ),
    (
        DISK,
        (
            "folio_wait_bit", "wait_on_page", "__lock_page", "io_schedule", "__iomap_dio", "iomap_dio", "blkdev_",
            "submit_bio_wait", "do_blockdev_direct", "__blockdev_direct", "ext4_dio", "xfs_", "btrfs_", "blk_",
            "rq_qos_wait", "wbt_wait", "balance_dirty", "jbd2_", "wait_on_buffer", "__wait_on_buffer", "bit_wait_io",
            "filemap_", "shrink_", "congestion_wait", "io_wq", "dio_await", "get_request", "blk_mq_get_tag",
        ),
    ),
    (
        PIPE,
        (
            "poll_schedule_timeout", "do_sys_poll", "do_poll", "do_select", "ep_poll", "do_epoll", "pipe_", "anon_pipe",
            "unix_stream", "unix_wait", "unix_dgram", "__skb_recv", "wait_for_common", "io_cqring_wait", "eventfd_",
        ),
    ),
    (LOCK, ("futex_", "__futex", "do_futex")),
    (SLEEP, ("hrtimer_nanosleep", "do_nanosleep", "schedule_hrtimeout", "common_nsleep")),
)  # fmt: skip


@lru_cache(maxsize=1024)  # called for every worker at every reading, with few different names
def wait_class(state: str, wchan: str | None) -> str:
    """State letter and function name -> one of the wait classes of :mod:`pipetune.records.observation`."""
    if state == "R":
        return RUNNING
    if wchan:
        for kind, beginnings in _FAMILIES:
            if wchan.startswith(beginnings):
                return kind
    return DISK if state == "D" else OTHER


def parse_wchan(text: bytes) -> str | None:
    """``/proc/PID/wchan`` -> function name; ``None`` for ``0``: it runs, or the kernel hides the name from us."""
    name = text.strip().decode("ascii", "replace")
    return None if name in ("", "0") else name
