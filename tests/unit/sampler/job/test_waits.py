from __future__ import annotations

import pytest

from pipetune.records.observation import DISK, LOCK, NETWORK, OTHER, PIPE, RUNNING, SLEEP
from pipetune.sampler.job.waits import parse_wchan, wait_class


@pytest.mark.parametrize(
    ("wchan", "kind"),
    [
        # Linux 4.x to 6.x
        ("poll_schedule_timeout.constprop.0", PIPE),
        ("do_sys_poll", PIPE),
        ("do_poll.constprop.0", PIPE),
        ("ep_poll", PIPE),
        ("do_epoll_wait", PIPE),
        ("do_select", PIPE),
        ("pipe_read", PIPE),
        ("pipe_wait", PIPE),
        ("anon_pipe_read", PIPE),
        ("anon_pipe_write", PIPE),
        ("unix_stream_read_generic", PIPE),
        ("unix_stream_data_wait", PIPE),
        ("futex_wait_queue", LOCK),
        ("futex_wait_queue_me", LOCK),
        ("futex_do_wait", LOCK),
        ("__futex_wait", LOCK),
        ("hrtimer_nanosleep", SLEEP),
        ("do_nanosleep", SLEEP),
        ("wait_woken", NETWORK),
        ("sk_wait_data", NETWORK),
        ("tcp_recvmsg_locked", NETWORK),
        ("inet_csk_accept", NETWORK),
        ("rpc_wait_bit_killable", NETWORK),
        ("nfs_wait_bit_killable", NETWORK),
        ("nfs4_handle_exception", NETWORK),
        ("request_wait_answer", NETWORK),
        ("fuse_get_req", NETWORK),
        ("p9_client_rpc", NETWORK),
        ("cifs_readpages", NETWORK),
        ("ceph_get_caps", NETWORK),
        ("folio_wait_bit_common", DISK),
        ("wait_on_page_bit_common", DISK),
        ("wait_on_page_bit_killable", DISK),
        ("__lock_page_killable", DISK),
        ("io_schedule", DISK),
        ("__iomap_dio_rw", DISK),
        ("blkdev_direct_IO", DISK),
        ("submit_bio_wait", DISK),
        ("rq_qos_wait", DISK),
        ("balance_dirty_pages", DISK),
        ("jbd2_log_wait_commit", DISK),
        ("blk_mq_get_tag", DISK),
        ("do_wait", OTHER),
        ("do_sigtimedwait", OTHER),
        ("kthread_worker_fn", OTHER),
    ],
)
def test_classes_of_kernel_functions(wchan: str, kind: str) -> None:
    assert wait_class("S", wchan) == kind


def test_who_runs_waits_for_nothing_whatever_an_old_name_says() -> None:
    assert wait_class("R", "futex_do_wait") == RUNNING
    assert wait_class("R", None) == RUNNING


def test_without_a_name_only_state_d_has_a_class() -> None:
    assert wait_class("D", None) == DISK
    assert wait_class("D", "some_new_function") == DISK
    assert wait_class("S", None) == OTHER
    assert wait_class("S", "some_new_function") == OTHER
    assert wait_class("T", None) == OTHER


def test_a_known_name_is_believed_before_the_state() -> None:
    # Uninterruptible, and yet it is NFS.
    assert wait_class("D", "rpc_wait_bit_killable") == NETWORK
    assert wait_class("D", "futex_wait_queue") == LOCK


@pytest.mark.parametrize(
    ("text", "name"),
    [(b"0", None), (b"", None), (b"0\n", None), (b"ep_poll", "ep_poll"), (b"do_wait\n", "do_wait")],
)
def test_zero_is_no_name(text: bytes, name: str | None) -> None:
    assert parse_wchan(text) == name


def test_a_name_of_strange_bytes_is_no_error() -> None:
    assert wait_class("S", parse_wchan(b"\xff\xfe")) == OTHER
