"""What shorter control intervals gain and cost: ``dets bench interval``. Start at bench.py."""
