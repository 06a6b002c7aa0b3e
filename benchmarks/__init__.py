"""Side-by-side measurements. Every figure comes with the machine it was taken on."""
