"""Does a model bear to compute in fewer bits?"""
