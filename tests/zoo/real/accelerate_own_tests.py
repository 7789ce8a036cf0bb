"""The script with which accelerate tests itself: many small trainings one after another."""

from accelerate.test_utils.scripts import test_script

if __name__ == "__main__":
    test_script.main()
