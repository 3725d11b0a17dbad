"""One candidate, one fresh process: :mod:`harness` is the parent's side, :mod:`child` the other, :mod:`wire` joins."""
