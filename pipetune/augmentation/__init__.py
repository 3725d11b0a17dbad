"""What is done to images besides decoding and cropping: recipes, what each image draws, and how a draw is applied."""
