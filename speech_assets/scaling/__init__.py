"""What published results mean at a larger scale: arithmetic on them and on labelled assumptions."""
