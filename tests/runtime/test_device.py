"""Devices, dtypes, and arrays that travel together."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minillm_serve.runtime.device import (
    ALIGNMENT,
    choose_device,
    choose_dtype,
    pack,
    unpack,
    upload,
    upload_one,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_auto_is_a_gpu_where_there_is_one():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("device", ["tpu", "mps", "no such thing"])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match=rf"device='{device}' is not supported: choose auto, cpu"):
        choose_device(device)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch sees no GPU: use device='cpu'"):
        choose_device("cuda")


def test_on_a_cpu_auto_is_float32_and_on_a_gpu_the_models_own(monkeypatch):
    assert choose_dtype("auto", "bfloat16", CPU) is torch.float32
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert choose_dtype("auto", "bfloat16", GPU) is torch.bfloat16
    assert choose_dtype("auto", "float16", GPU) is torch.float16


def test_a_gpu_that_only_emulates_bfloat16_gets_float16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert choose_dtype("auto", "bfloat16", GPU) is torch.float16
    assert choose_dtype("bfloat16", "bfloat16", GPU) is torch.bfloat16


@pytest.mark.parametrize("dtype", ["int8", torch.int8, "half a float"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match="is unknown: choose from auto, float64"):
        choose_dtype(dtype, "float32", CPU)


arrays = st.lists(
    st.tuples(
        st.sampled_from([np.int64, np.int32, np.float64, np.float32, np.uint8]),
        st.lists(st.integers(0, 5), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(arrays)
def test_what_is_packed_comes_out_again_and_lies_aligned(shapes):
    draw = np.random.default_rng(0)
    given_arrays = [draw.integers(0, 100, shape).astype(dtype) for dtype, shape in shapes]
    packed = pack(given_arrays)
    for array, view in zip(given_arrays, unpack(packed, given_arrays), strict=True):
        assert torch.equal(view, torch.from_numpy(array))
        assert view.dtype == torch.from_numpy(array).dtype
        assert view.numel() == 0 or (view.data_ptr() - packed.data_ptr()) % ALIGNMENT == 0


def test_a_strided_array_is_packed_by_its_values():
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T[1:]
    (view,) = unpack(pack([array]), [array])
    assert torch.equal(view, torch.from_numpy(array.copy()))


def test_lists_and_arrays_reach_a_device():
    ids, values = upload([np.array([1, 2]), np.array([0.5], np.float32)], CPU)
    assert ids.tolist() == [1, 2]
    assert values.tolist() == [0.5]
    assert upload_one([], np.int64, CPU).shape == (0,)
