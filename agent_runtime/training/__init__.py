"""How the small checkpoint is made: data, injected bugs, tokenizer, objectives, trainer, measurements.

`python -m agent_runtime.training all --out DIR` does all of it. Needs what the package needs, and pip for the
wheels that functions are collected from. Nothing here is imported when an agent runs.

    corpus ─► functions.jsonl ─► tokenizer
                    │
       bugs ─► alignment ─► shards ─► objectives ─► stream ─► trainer ─► export ─► evaluate
                    └─► calls ─► call_batches ────────────────┘
"""
