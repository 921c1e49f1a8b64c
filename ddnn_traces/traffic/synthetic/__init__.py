"""Made-up traffic that obeys the laws of the collectives: nothing here is measured."""
