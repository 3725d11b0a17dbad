"""One program per promise that pipetune makes, in folders by subject; ``python -m benchmarks --help`` runs them."""
