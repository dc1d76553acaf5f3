"""What torch's variable-length attention operators compute, sequence by sequence in plain tensor operations."""

import torch


def sequences(query_bounds, key_bounds):
    """(query rows, key rows) of each sequence, from cumulative bounds."""
    assert query_bounds.dtype == key_bounds.dtype == torch.int32
    ends = zip(query_bounds.tolist(), query_bounds.tolist()[1:], key_bounds.tolist(), key_bounds.tolist()[1:], strict=False)
    return [(slice(a, b), slice(c, d)) for a, b, c, d in ends]


def scores_of(query, key, causal, scale):
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    if causal:
        assert query.shape[0] == key.shape[0]
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
    return scores


def check(tensors, query_bounds, key_bounds, longest_query, longest_key):
    assert all(tensor.is_contiguous() for tensor in tensors)
    pairs = sequences(query_bounds, key_bounds)
    assert max(q.stop - q.start for q, _ in pairs) == longest_query
    assert max(k.stop - k.start for _, k in pairs) == longest_key
    assert pairs[-1][0].stop == tensors[0].shape[0]
    assert pairs[-1][1].stop == tensors[1].shape[0]
    return pairs


def forward(query, key, value, query_bounds, key_bounds, longest_query, longest_key, causal, scale):
    """Output as the query, log-sum-exp as [H, N], and a random state nobody reads."""
    pairs = check((query, key, value), query_bounds, key_bounds, longest_query, longest_key)
    repeats = query.shape[1] // key.shape[1]
    output, logsumexp = torch.empty_like(query), torch.empty(query.shape[1], query.shape[0])
    for q, k in pairs:
        keys, values = (tensor[k].repeat_interleave(repeats, 1) for tensor in (key, value))
        scores = scores_of(query[q], keys, causal, scale)
        output[q] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
        logsumexp[:, q] = scores.logsumexp(-1)
    return output, logsumexp, torch.zeros(2, dtype=torch.uint64)


def backward(
    grad, query, key, value, output, logsumexp, query_bounds, key_bounds, longest_query, longest_key, causal, state, scale
):
    """Gradients as a flash kernel takes them: from the output and the log-sum-exp it is given, which it believes."""
    assert state.dtype == torch.uint64
    pairs = check((query, key, value, grad, output), query_bounds, key_bounds, longest_query, longest_key)
    assert logsumexp.is_contiguous()
    assert logsumexp.shape == (query.shape[1], query.shape[0])
    heads, repeats = key.shape[1], query.shape[1] // key.shape[1]
    grads = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    for q, k in pairs:
        keys, values = (tensor[k].repeat_interleave(repeats, 1) for tensor in (key, value))
        weights = (scores_of(query[q], keys, causal, scale) - logsumexp[:, q, None]).exp()
        inner = (grad[q] * output[q]).sum(-1).T[..., None]
        slope = weights * (torch.einsum("qhd,khd->hqk", grad[q], values) - inner) * scale
        grads[0][q] += torch.einsum("hqk,khd->qhd", slope, keys)
        for total, part in ((grads[1], (slope, query[q])), (grads[2], (weights, grad[q]))):
            each = torch.einsum("hqk,qhd->khd", *part)
            total[k] += each.reshape(each.shape[0], heads, repeats, -1).sum(2)
    return grads
