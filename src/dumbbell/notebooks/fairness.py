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
run_dir = "results/latest"

# %%
from dumbbell.report.pages.sharing import Sharing
from dumbbell.report.parts import setup

sharing = Sharing(run_dir)
setup()

# %%
sharing.header()

# %% [markdown]
# ## Shares

# %%
sharing.flows()

# %%
sharing.convergence()

# %%
sharing.goodput()

# %%
sharing.fairness()

# %% [markdown]
# ## Why

# %%
sharing.cwnd()

# %%
sharing.srtt()

# %%
sharing.variables()

# %%
sharing.available()

# %%
sharing.pstreams()

# %% [markdown]
# ## Why segments were sent again

# %%
sharing.sent_again()

# %%
sharing.senders_queue()

# %%
sharing.overtaken()
