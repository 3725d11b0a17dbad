"""Does `pipetune watch` name the right cause?"""
