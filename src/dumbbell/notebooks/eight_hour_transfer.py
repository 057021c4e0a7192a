# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
run_dir = "results/latest/points/001"
flow = ""  # by default the first that TCP carries

# %%
from dumbbell.report.pages.transfer import ZOOM, Transfer
from dumbbell.report.parts import setup

transfer = Transfer(run_dir, flow)
setup()

# %%
transfer.header()

# %% [markdown]
# ## Throughput

# %%
transfer.iperf3()

# %%
transfer.instantaneous()

# %% [markdown]
# ## Congestion window

# %%
transfer.cwnd_over_time()

# %% [markdown]
# The first forty-eighth of the time: ten minutes of eight hours.

# %%
transfer.cwnd_over_time(ZOOM)

# %% [markdown]
# ## Window and rate
# Below the bandwidth-delay product the rate grows with the window; above it the window only fills queues.

# %%
transfer.cwnd_and_rate()

# %% [markdown]
# Only where the sender's own queue had refused a segment since the sample before, and only where not.

# %%
transfer.cwnd_and_rate("with stalls")

# %%
transfer.cwnd_and_rate("without stalls")

# %% [markdown]
# Only where nothing made the sender reduce its window.

# %%
transfer.cwnd_and_rate("without signals")

# %% [markdown]
# ## What made the sender back off

# %%
transfer.cumulative("SendStall")

# %%
transfer.cumulative("CongestionSignals", "SendStall")

# %%
transfer.cumulative("FastRetran")

# %%
transfer.cumulative("Timeouts")

# %%
transfer.cumulative("DupAcksIn")

# %%
transfer.cumulative("OtherReductions")

# %%
transfer.budget()

# %% [markdown]
# ## Slow start

# %%
transfer.cumulative("SlowStart")

# %%
transfer.per_second("SlowStart", "SendStall")

# %% [markdown]
# ## Packets and round trips

# %%
transfer.packets()

# %%
transfer.rtt_over_time()

# %%
transfer.rtt_histogram()

# %% [markdown]
# ## Reductions that were taken back, and timeouts

# %%
transfer.undone()

# %%
transfer.timeouts()

# %% [markdown]
# ## Reordering
# Duplicate ACKs without fast retransmits are packets out of order, not lost.

# %%
transfer.per_second("DupAcksIn", "FastRetran")

# %%
transfer.dup_acks()
