#!/bin/sh
# A job's command is read by no shell, and only the host knows its workdir and its number.
home=${MAXTEXT_HOME:-$HOME/.cache/maxtext}
exec "$home/venv/bin/python" -m maxtext.trainers.pre_train.train run_name=tiny base_output_directory="$TPUKIT_WORKDIR" \
  dataset_type=grain grain_file_type=parquet grain_train_files="$home/data/alice-*.parquet" grain_worker_count=1 \
  tokenizer_type=sentencepiece tokenizer_path="$(echo "$home"/venv/lib/python3*/site-packages/maxtext/assets/tokenizers)/tokenizer.llama2" \
  metrics_file="$TPUKIT_WORKDIR/metrics-$MEGASCALE_SLICE_ID-$TPU_WORKER_ID.jsonl" "$@"
