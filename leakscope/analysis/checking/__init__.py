"""What a check is made of: the limit, the baseline, suppressions, and the judgement."""
