"""Token ids to text: detokenization, stop strings, and where an output ends."""
